"""How HTML pages are rendered: templates of the package only, everything escaped, nothing undefined passed over."""

from jinja2 import Environment, PackageLoader, StrictUndefined


def page_environment(package: str) -> Environment:
    """Return the template environment of a package that has a ``templates`` folder."""
    return Environment(
        loader=PackageLoader(package),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
