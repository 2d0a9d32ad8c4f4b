"""How one worker grows: with many agents at once (`agents`), with many tasks one after the other (`soak`)."""
