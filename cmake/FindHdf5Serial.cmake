# Finds HDF5's C library and its high-level library, built without MPI: target Hdf5Serial::hdf5
# Debian's hdf5-serial.pc does not name the high-level library, and CMake's FindHDF5 needs the language C.
find_path(Hdf5Serial_INCLUDE_DIR hdf5_hl.h PATH_SUFFIXES hdf5/serial)
find_library(Hdf5Serial_LIBRARY NAMES hdf5_serial hdf5)
find_library(Hdf5Serial_HL_LIBRARY NAMES hdf5_serial_hl hdf5_hl)
include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(Hdf5Serial
  REQUIRED_VARS Hdf5Serial_LIBRARY Hdf5Serial_HL_LIBRARY Hdf5Serial_INCLUDE_DIR)
if(Hdf5Serial_FOUND AND NOT TARGET Hdf5Serial::hdf5)
  add_library(Hdf5Serial::hdf5 UNKNOWN IMPORTED)
  set_target_properties(Hdf5Serial::hdf5 PROPERTIES
    IMPORTED_LOCATION ${Hdf5Serial_LIBRARY} INTERFACE_INCLUDE_DIRECTORIES ${Hdf5Serial_INCLUDE_DIR}
    INTERFACE_LINK_LIBRARIES ${Hdf5Serial_HL_LIBRARY})
endif()
mark_as_advanced(Hdf5Serial_INCLUDE_DIR Hdf5Serial_LIBRARY Hdf5Serial_HL_LIBRARY)
