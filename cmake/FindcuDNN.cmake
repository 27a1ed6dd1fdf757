# Finds cuDNN next to the CUDA toolkit, in the system's directories, or in NVIDIA's Python package (nvidia/cudnn, given
# by cuDNN_ROOT). Requires a preceding find_package(CUDAToolkit).
#   cuDNN_FOUND, cuDNN_VERSION, target cuDNN::cudnn
set(hints ${cuDNN_ROOT} $ENV{cuDNN_ROOT} ${CUDAToolkit_TARGET_DIR} ${CUDAToolkit_LIBRARY_ROOT} $ENV{CUDA_HOME}
  /usr/local/cuda)
find_path(cuDNN_INCLUDE_DIR cudnn_version.h HINTS ${hints} PATH_SUFFIXES include)
# The Python package has no libcudnn.so.
find_library(cuDNN_LIBRARY NAMES cudnn libcudnn.so.9 HINTS ${hints} PATH_SUFFIXES lib64 lib)
if(cuDNN_INCLUDE_DIR)
  # The first header may only include the second one.
  foreach(version_file cudnn_version.h cudnn_version_v9.h)
    if(EXISTS ${cuDNN_INCLUDE_DIR}/${version_file})
      file(STRINGS ${cuDNN_INCLUDE_DIR}/${version_file} lines REGEX "^#define CUDNN_(MAJOR|MINOR|PATCHLEVEL) +[0-9]+")
      foreach(line ${lines})
        if(line MATCHES "CUDNN_(MAJOR|MINOR|PATCHLEVEL) +([0-9]+)")
          set(cuDNN_VERSION_${CMAKE_MATCH_1} ${CMAKE_MATCH_2})
        endif()
      endforeach()
    endif()
  endforeach()
  set(cuDNN_VERSION ${cuDNN_VERSION_MAJOR}.${cuDNN_VERSION_MINOR}.${cuDNN_VERSION_PATCHLEVEL})
endif()
include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(cuDNN REQUIRED_VARS cuDNN_LIBRARY cuDNN_INCLUDE_DIR VERSION_VAR cuDNN_VERSION)
if(cuDNN_FOUND AND NOT TARGET cuDNN::cudnn)
  add_library(cuDNN::cudnn UNKNOWN IMPORTED)
  set_target_properties(cuDNN::cudnn PROPERTIES
    IMPORTED_LOCATION ${cuDNN_LIBRARY} INTERFACE_INCLUDE_DIRECTORIES ${cuDNN_INCLUDE_DIR})
endif()
mark_as_advanced(cuDNN_INCLUDE_DIR cuDNN_LIBRARY)
