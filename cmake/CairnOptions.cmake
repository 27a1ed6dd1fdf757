# Compiler options of all Cairn targets, and cairn_library(), with which each folder declares its target.

add_library(cairn_options INTERFACE)
target_include_directories(cairn_options INTERFACE ${PROJECT_SOURCE_DIR})
set(cairn_host_flags
  -pthread -Wall -Wextra -Wshadow -Wnon-virtual-dtor -Woverloaded-virtual -fno-omit-frame-pointer
  # Without this option, errno of sqrt() prevents GCC 12 from vectorising Adam: a factor of 18.
  -fno-math-errno)
# nvcc passes the argument of -Xcompiler to the host compiler.
list(JOIN cairn_host_flags "," cairn_nvcc_host_flags)
target_compile_options(cairn_options INTERFACE
  "$<$<COMPILE_LANGUAGE:CXX>:${cairn_host_flags}>"
  "$<$<COMPILE_LANGUAGE:CUDA>:-Xcompiler=${cairn_nvcc_host_flags}>")
if(CMAKE_CXX_COMPILER_ID MATCHES "Clang")
  target_compile_options(cairn_options INTERFACE -Wthread-safety)
  # Debian's Abseil was built by GCC; newer clang mangles its constrained templates differently.
  if(CMAKE_CXX_COMPILER_VERSION VERSION_GREATER_EQUAL 18)
    target_compile_options(cairn_options INTERFACE -fclang-abi-compat=17)
  endif()
  # Without this option, compiler caches do not recognize a precompiled header that was rebuilt.
  target_compile_options(cairn_options INTERFACE "SHELL:-Xclang -fno-pch-timestamp")
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

if(CAIRN_FUZZ)
  # Coverage counters; only the fuzz targets link libFuzzer's main. UndefinedBehaviorSanitizer does not check
  # conversions of out-of-range floats by default.
  add_compile_options(-fsanitize=fuzzer-no-link,float-cast-overflow -fno-sanitize-recover=float-cast-overflow)
endif()

# cairn_computes(TARGET): optimises a compute library in debug builds too, where tests spend much of their time, and
# excludes it from the coverage counters, because no fuzz target reaches it.
function(cairn_computes target)
  target_compile_options(${target} PRIVATE $<$<CONFIG:Debug>:-O1>)
  if(CAIRN_FUZZ)
    target_compile_options(${target} PRIVATE -fno-sanitize=fuzzer-no-link)
  endif()
endfunction()

# cairn_compiles_headers(TARGET): TARGET only precompiles headers that others reuse.
function(cairn_compiles_headers target)
  set(launcher ${PROJECT_SOURCE_DIR}/cmake/precompile.sh ${CMAKE_CXX_COMPILER_LAUNCHER})
  set_target_properties(${target} PROPERTIES CXX_COMPILER_LAUNCHER "${launcher}")
endfunction()

# cairn_precompile_headers(NAME [LIBS... HEADERS more...] [OPTIONS...]): precompiles the headers that most sources
# include; parsing them for each source would take more time than everything else. Applies to the libraries that this
# folder declares afterwards, or names. OPTIONS: the compiler options of those libraries.
function(cairn_precompile_headers name)
  if(NOT CAIRN_PRECOMPILE_HEADERS)
    return()
  endif()
  cmake_parse_arguments(ARG "" "" "LIBS;HEADERS;OPTIONS" ${ARGN})
  file(WRITE ${CMAKE_BINARY_DIR}/${name}.cc "")
  add_library(${name} OBJECT ${CMAKE_BINARY_DIR}/${name}.cc)
  target_link_libraries(${name} PRIVATE cairn_options absl::statusor absl::strings ${ARG_LIBS})
  set_target_properties(${name} PROPERTIES POSITION_INDEPENDENT_CODE ON)
  target_compile_options(${name} PRIVATE ${ARG_OPTIONS})
  cairn_compiles_headers(${name})
  target_precompile_headers(${name} PRIVATE
    <algorithm> <array> <atomic> <chrono> <cstdint> <functional> <map> <memory> <optional> <string> <utility>
    <vector> <absl/status/status.h> <absl/status/statusor.h> <absl/strings/str_cat.h> <absl/types/span.h> ${ARG_HEADERS})
  set(CAIRN_HEADERS ${name} PARENT_SCOPE)
endfunction()

# The protocol headers that half of the sources include, directly or indirectly.
set(CAIRN_MESSAGE_HEADERS
  <cairn/v1/inspector.pb.h> <cairn/v1/job.pb.h> <cairn/v1/parameter_server.pb.h> <cairn/v1/replicate.pb.h>
  <cairn/v1/session.pb.h>)

# cairn_compiles_folders(TARGET SOURCES...): compiles the sources of a folder together, if asked to. Names in anonymous
# namespaces must therefore be unique within a folder. Takes half the processor time, but an edit compiles the folder.
function(cairn_compiles_folders target)
  if(NOT CAIRN_COMPILE_FOLDERS)
    return()
  endif()
  foreach(source ${ARGN})
    get_filename_component(folder ${source} DIRECTORY)
    string(MAKE_C_IDENTIFIER "of_${folder}" group)
    set_source_files_properties(${source} PROPERTIES UNITY_GROUP ${group})
  endforeach()
  set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_MODE GROUP)
endfunction()

# cairn_joins_cuda_folders(RESULT SOURCES...): the same for CUDA, which CMake does not compile together. RESULT gets a
# source for each folder, which includes its .cu files, and the other sources.
function(cairn_joins_cuda_folders result)
  if(NOT CAIRN_COMPILE_FOLDERS)
    set(${result} ${ARGN} PARENT_SCOPE)
    return()
  endif()
  set(folders)
  set(sources)
  file(RELATIVE_PATH here ${PROJECT_SOURCE_DIR} ${CMAKE_CURRENT_SOURCE_DIR})
  foreach(source ${ARGN})
    if(NOT source MATCHES "\\.cu$")
      list(APPEND sources ${source})
      continue()
    endif()
    get_filename_component(folder ${source} DIRECTORY)
    list(APPEND folders ${folder})
    string(APPEND code_of_${folder} "#include \"${here}/${source}\"\n")
  endforeach()
  list(REMOVE_DUPLICATES folders)
  foreach(folder ${folders})
    set(joined ${CMAKE_CURRENT_BINARY_DIR}/folders/${folder}.cu)
    file(CONFIGURE OUTPUT ${joined} CONTENT "${code_of_${folder}}" @ONLY)
    list(APPEND sources ${joined})
  endforeach()
  set(${result} ${sources} PARENT_SCOPE)
endfunction()

# Commands and programs are compiled with few optimizations: each runs once, and the code of a command line parser is
# large. cairn_command_headers has these options.
set(CAIRN_COMMAND_OPTIONS $<$<CONFIG:Release>:-O1>)
function(cairn_compiles_commands target)
  target_compile_options(${target} PRIVATE ${CAIRN_COMMAND_OPTIONS})
  if(CAIRN_PRECOMPILE_HEADERS)
    target_precompile_headers(${target} REUSE_FROM cairn_command_headers)
  endif()
endfunction()

# cairn_program(NAME SOURCE libs...)
function(cairn_program name source)
  add_executable(${name} ${source})
  target_link_libraries(${name} PRIVATE cairn_options ${ARGN})
  target_compile_options(${name} PRIVATE -fPIC)  # as the precompiled headers
  cairn_compiles_commands(${name})
endfunction()

# cairn_library(NAME SOURCES... [PUBLIC libs...] [PRIVATE libs...] [OWN_OPTIONS | COMMANDS])
# OWN_OPTIONS: the library has its own compiler options, so it cannot use the precompiled headers, with which GCC takes
# the options that they were compiled with: -ffp-contract=off would have no effect.
# COMMANDS: the sources are those of commands.
function(cairn_library name)
  cmake_parse_arguments(ARG "OWN_OPTIONS;COMMANDS" "" "SOURCES;PUBLIC;PRIVATE" ${ARGN})
  add_library(${name} STATIC ${ARG_SOURCES})
  # The compiler options are not exported: users of the installed library choose their own.
  target_link_libraries(${name} PUBLIC $<BUILD_INTERFACE:cairn_options> ${ARG_PUBLIC} PRIVATE ${ARG_PRIVATE})
  set_target_properties(${name} PROPERTIES POSITION_INDEPENDENT_CODE ON)
  if(ARG_COMMANDS)
    cairn_compiles_commands(${name})
  elseif(CAIRN_HEADERS AND NOT ARG_OWN_OPTIONS)
    target_precompile_headers(${name} REUSE_FROM ${CAIRN_HEADERS})
  endif()
  cairn_compiles_folders(${name} ${ARG_SOURCES})
endfunction()
