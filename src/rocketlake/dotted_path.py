"""Objects that options name by dotted paths, such as `package.module.Class`."""

from importlib import import_module

from rocketlake.errors import ConfigError


def find_object(path: str) -> object:
    """Import the module of a dotted path and return the object that the path names.

    Raises:
        ConfigError: the path has no module, or the object cannot be loaded, whatever the import
            raises; the text has the path and the reason.
    """
    module_name, _, name = path.rpartition(".")
    if not module_name:
        raise ConfigError(f"{path} wanted a dotted path such as package.module.Class")
    try:
        found: object = getattr(import_module(module_name), name)
    except Exception as error:  # the import runs the module's code, which may raise anything
        raise ConfigError(f"{path} cannot be loaded: {error!r}") from error
    return found
