"""Let the site read `Example:` in docstrings as the section that griffe calls `Examples:`."""

import griffe


class Examples(griffe.Extension):
    """Renames the section, so that doctests become code and not quotations."""

    def on_instance(self, *, obj: griffe.Object, **kwargs: object) -> None:
        """Change the docstring of a module, class or function that was just read."""
        if obj.docstring:
            lines = obj.docstring.value.split("\n")
            obj.docstring.value = "\n".join(
                "Examples:" if line.strip() == "Example:" else line for line in lines
            )
