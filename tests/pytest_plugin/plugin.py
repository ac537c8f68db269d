"""How a pytest run inside a test gets the plugin: it is installed, or named."""

from importlib.metadata import entry_points

_MODULE = "persona_pipeline.pytest_plugin"
PLUGIN = () if any(item.value == _MODULE for item in entry_points(group="pytest11")) else ("-p", _MODULE)
