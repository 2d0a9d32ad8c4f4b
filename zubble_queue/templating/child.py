"""Renders one template from standard input to standard output, in a process of its own with hard limits.

It is started by its path and imports nothing of this package. A template can compute for ever, and fill all
memory, in ways that no rule of a sandboxed environment foresees; a process can be ended.
"""

from __future__ import annotations

import json
import resource
import sys

CPU_SECONDS = 1
MEMORY_BYTES = 512 * 1_048_576
OUTPUT_CHARS = 32_768


def main() -> int:
    """Returns 0 and writes the text, or 1 and writes what is wrong."""
    asked = json.load(sys.stdin)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS, CPU_SECONDS))
    from jinja2 import StrictUndefined, TemplateError  # noqa: PLC0415  # within the limits
    from jinja2.sandbox import SandboxedEnvironment  # noqa: PLC0415

    environment = SandboxedEnvironment(undefined=StrictUndefined, keep_trailing_newline=True, cache_size=0)
    parts: list[str] = []
    size = 0
    try:
        for part in environment.from_string(asked["template"]).generate(**asked["variables"]):
            parts.append(part)
            size += len(part)
            if size > OUTPUT_CHARS:
                return _wrong(f"the text is longer than {OUTPUT_CHARS} characters")
    except TemplateError as wrong:
        return _wrong(f"{type(wrong).__name__}: {wrong.message or ''}")
    except MemoryError:
        return _wrong("it needs too much memory")
    except Exception as wrong:  # noqa: BLE001 - whatever a template raises is wrong with the template
        return _wrong(f"{type(wrong).__name__}: {wrong}")
    sys.stdout.write(json.dumps("".join(parts)))
    return 0


def _wrong(text: str) -> int:
    sys.stdout.write(json.dumps(text[:300]))
    return 1


if __name__ == "__main__":
    sys.exit(main())
