"""Tools beside the shell: they act through the sandbox alone, and errors are values that the model reads."""
