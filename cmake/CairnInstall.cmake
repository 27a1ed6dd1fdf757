# Installation and packages: the programs with man pages and completions (component cairn), the C++ library (libcairn),
# what find_package(Cairn) needs (libcairn-dev), and the CUDA backend if it was built (cairn-cuda).
include(CMakePackageConfigHelpers)
# An installation must not require that all tests have been built.
set(CMAKE_SKIP_INSTALL_ALL_DEPENDENCY ON)
set(cairn_components cairn libcairn libcairn-dev)
set(cairn_programs cairn cairn-ps cairn-worker)

# --- cairn ---

install(TARGETS ${cairn_programs} RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT cairn)

# cairn_document(PROGRAM FORMAT FILE FILTER...): generates a page or completion from the flags of PROGRAM.
set(cairn_documents "")
function(cairn_document program format file)
  set(path ${CMAKE_BINARY_DIR}/share/${file})
  cmake_path(GET path PARENT_PATH folder)
  file(MAKE_DIRECTORY ${folder})
  add_custom_command(OUTPUT ${path} DEPENDS ${program}
    COMMAND $<TARGET_FILE:${program}> --help_as=${format} ${ARGN} > ${path})
  set(cairn_documents ${cairn_documents} ${path} PARENT_SCOPE)
endfunction()
# The directory below /usr/share that Debian's zsh searches; other systems use site-functions.
set(CAIRN_ZSH_COMPLETIONS zsh/vendor-completions CACHE STRING "Where completions for zsh go, below share/")
foreach(program ${cairn_programs})
  cairn_document(${program} man man/man1/${program}.1.gz | gzip -9nc)
  cairn_document(${program} bash bash-completion/completions/${program})
  cairn_document(${program} zsh zsh/_${program})
  install(FILES ${CMAKE_BINARY_DIR}/share/zsh/_${program} COMPONENT cairn
    DESTINATION ${CMAKE_INSTALL_DATAROOTDIR}/${CAIRN_ZSH_COMPLETIONS})
endforeach()
add_custom_target(cairn_documents ALL DEPENDS ${cairn_documents})
install(DIRECTORY ${CMAKE_BINARY_DIR}/share/man/ DESTINATION ${CMAKE_INSTALL_MANDIR} COMPONENT cairn)
install(DIRECTORY ${CMAKE_BINARY_DIR}/share/bash-completion DESTINATION ${CMAKE_INSTALL_DATAROOTDIR} COMPONENT cairn)

install(FILES README.md CHANGELOG.md DESTINATION ${CMAKE_INSTALL_DATAROOTDIR}/doc/cairn COMPONENT cairn)
install(DIRECTORY deploy/examples DESTINATION ${CMAKE_INSTALL_DATAROOTDIR}/doc/cairn COMPONENT cairn)

# --- libcairn, libcairn-dev ---

install(TARGETS cairn_shared EXPORT CairnTargets
  LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT libcairn NAMELINK_COMPONENT libcairn-dev)
install(DIRECTORY include/cairn DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT libcairn-dev
  FILES_MATCHING PATTERN "*.h")

set(cairn_cmake_folder ${CMAKE_INSTALL_LIBDIR}/cmake/Cairn)
install(EXPORT CairnTargets NAMESPACE Cairn:: DESTINATION ${cairn_cmake_folder} COMPONENT libcairn-dev)
configure_package_config_file(cmake/CairnConfig.cmake.in ${CMAKE_BINARY_DIR}/CairnConfig.cmake
  INSTALL_DESTINATION ${cairn_cmake_folder})
write_basic_package_version_file(${CMAKE_BINARY_DIR}/CairnConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_BINARY_DIR}/CairnConfig.cmake ${CMAKE_BINARY_DIR}/CairnConfigVersion.cmake
  DESTINATION ${cairn_cmake_folder} COMPONENT libcairn-dev)

# --- cairn-cuda ---

if(CAIRN_HAVE_CUDA)
  list(APPEND cairn_components cairn-cuda)
  install(TARGETS cairn_cuda_backend LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT cairn-cuda)
endif()

# --- Debian packages: cpack -G DEB ---

foreach(component ${cairn_components})
  install(FILES LICENSE DESTINATION ${CMAKE_INSTALL_DATAROOTDIR}/doc/${component} RENAME copyright COMPONENT ${component})
endforeach()
set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME cairn)
set(CPACK_PACKAGE_CONTACT "The Cairn authors <maintainers@cairn.invalid>")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "${PROJECT_DESCRIPTION}")
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_VERBATIM_VARIABLES ON)
set(CPACK_COMPONENTS_ALL ${cairn_components})
set(CPACK_COMPONENTS_GROUPING IGNORE)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_CAIRN_PACKAGE_NAME cairn)
set(CPACK_DEBIAN_CAIRN_PACKAGE_SECTION science)
set(CPACK_DEBIAN_CAIRN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_LIBCAIRN_PACKAGE_NAME libcairn${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR})
set(CPACK_DEBIAN_LIBCAIRN_PACKAGE_SECTION libs)
set(CPACK_DEBIAN_LIBCAIRN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_LIBCAIRN_DESCRIPTION "C++ library of Cairn's parameter servers")
set(CPACK_DEBIAN_LIBCAIRN-DEV_PACKAGE_NAME libcairn-dev)
set(CPACK_DEBIAN_LIBCAIRN-DEV_PACKAGE_SECTION libdevel)
set(CPACK_DEBIAN_LIBCAIRN-DEV_PACKAGE_DEPENDS "${CPACK_DEBIAN_LIBCAIRN_PACKAGE_NAME} (= ${PROJECT_VERSION})")
set(CPACK_DEBIAN_LIBCAIRN-DEV_DESCRIPTION "Headers of Cairn's C++ library, for find_package(Cairn)")
# NVIDIA's libraries are not package dependencies; `cairn devices` names a missing one. NCCL is optional.
set(CPACK_DEBIAN_CAIRN-CUDA_PACKAGE_NAME cairn-cuda)
set(CPACK_DEBIAN_CAIRN-CUDA_PACKAGE_SECTION science)
set(CPACK_DEBIAN_CAIRN-CUDA_PACKAGE_DEPENDS "cairn (= ${PROJECT_VERSION})")
set(CPACK_DEBIAN_CAIRN-CUDA_DESCRIPTION "Cairn's workers on NVIDIA GPUs")
include(CPack)
