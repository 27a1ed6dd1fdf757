# Compiler options of every target of ours, and cairn_library(), the one way a folder declares its target.

add_library(cairn_options INTERFACE)
target_include_directories(cairn_options INTERFACE ${PROJECT_SOURCE_DIR})
target_compile_options(cairn_options INTERFACE
  -pthread -Wall -Wextra -Wshadow -Wnon-virtual-dtor -Woverloaded-virtual -fno-omit-frame-pointer
  # errno from sqrt() keeps GCC 12 from vectorising Adam: a factor of 18.
  -fno-math-errno)
if(CMAKE_CXX_COMPILER_ID MATCHES "Clang")
  target_compile_options(cairn_options INTERFACE -Wthread-safety)
  # Debian's Abseil was built by GCC; newer clang mangles its constrained templates differently.
  if(CMAKE_CXX_COMPILER_VERSION VERSION_GREATER_EQUAL 18)
    target_compile_options(cairn_options INTERFACE -fclang-abi-compat=17)
  endif()
endif()

if(CAIRN_SANITIZE)
  add_compile_options("-fsanitize=${CAIRN_SANITIZE}")
  add_link_options("-fsanitize=${CAIRN_SANITIZE}")
  if(CAIRN_SANITIZE MATCHES "undefined")
    add_compile_options(-fno-sanitize-recover=undefined)
  endif()
  if(CAIRN_SANITIZE MATCHES "thread" AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    add_compile_options(-Wno-tsan)  # absl's headers use atomic_thread_fence
  endif()
endif()

# cairn_library(NAME SOURCES... [PUBLIC libs...] [PRIVATE libs...])
function(cairn_library name)
  cmake_parse_arguments(ARG "" "" "SOURCES;PUBLIC;PRIVATE" ${ARGN})
  add_library(${name} STATIC ${ARG_SOURCES})
  target_link_libraries(${name} PUBLIC cairn_options ${ARG_PUBLIC} PRIVATE ${ARG_PRIVATE})
  set_target_properties(${name} PROPERTIES POSITION_INDEPENDENT_CODE ON)
endfunction()
