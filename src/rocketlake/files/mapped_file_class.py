"""The class of the log's files: MappedFile, or the one that an option names."""

import logging

from rocketlake.dotted_path import find_object
from rocketlake.errors import ConfigError
from rocketlake.files.mapped_file import MappedFile

log = logging.getLogger(__name__)


def find_mapped_file_class(path: str) -> type[MappedFile]:
    """Return the class of a dotted path; MappedFile for an empty path.

    A class that cannot be loaded, or is no subclass of MappedFile, is named in the log, and
    MappedFile takes its place.
    """
    if not path:
        return MappedFile
    try:
        found = find_object(path)
    except ConfigError as error:
        # Compat: AllocateMappedFileService: "Use default implementation."
        log.warning("mappedFileClass: %s; MappedFile is used", error)
        return MappedFile
    if isinstance(found, type) and issubclass(found, MappedFile):
        return found
    log.warning("mappedFileClass: %s is no subclass of MappedFile; MappedFile is used", path)
    return MappedFile
