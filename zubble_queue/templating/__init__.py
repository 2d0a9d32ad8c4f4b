"""Prompts from template files (Jinja2): what a template may use, and rendering one that is not trusted."""
