# Compiler options of every target of ours, and cairn_library(), the one way a folder declares its target.

add_library(cairn_options INTERFACE)
target_include_directories(cairn_options INTERFACE ${PROJECT_SOURCE_DIR})
set(cairn_host_flags
  -pthread -Wall -Wextra -Wshadow -Wnon-virtual-dtor -Woverloaded-virtual -fno-omit-frame-pointer
  # errno from sqrt() keeps GCC 12 from vectorising Adam: a factor of 18.
  -fno-math-errno)
# nvcc hands its host compiler what follows -Xcompiler.
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
  # Else a compiler cache does not know a precompiled header again when it is made anew, at the same place.
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
  # Counters for coverage; only the targets link libFuzzer's main. Numbers from outside that no integer can hold are
  # what UndefinedBehaviorSanitizer does not look for by itself.
  add_compile_options(-fsanitize=fuzzer-no-link,float-cast-overflow -fno-sanitize-recover=float-cast-overflow)
endif()

# cairn_computes(TARGET): a debug build's tests run a good part of their time in there: it is optimised, and nothing
# of it is counted, since nothing that is fuzzed is reached there.
function(cairn_computes target)
  target_compile_options(${target} PRIVATE $<$<CONFIG:Debug>:-O1>)
  if(CAIRN_FUZZ)
    target_compile_options(${target} PRIVATE -fno-sanitize=fuzzer-no-link)
  endif()
endfunction()

# cairn_precompile_headers(NAME [LIBS... HEADERS more...]): what nearly every source includes, parsed once: a sanitizer's
# build is otherwise mostly that. Serves the libraries of this folder from here on. Release builds do without, so that a
# source that forgets an include is found.
function(cairn_precompile_headers name)
  if(NOT CAIRN_SANITIZE)
    return()
  endif()
  cmake_parse_arguments(ARG "" "" "LIBS;HEADERS" ${ARGN})
  file(WRITE ${CMAKE_BINARY_DIR}/${name}.cc "")
  add_library(${name} OBJECT ${CMAKE_BINARY_DIR}/${name}.cc)
  target_link_libraries(${name} PRIVATE cairn_options absl::statusor absl::strings ${ARG_LIBS})
  set_target_properties(${name} PROPERTIES POSITION_INDEPENDENT_CODE ON)
  target_precompile_headers(${name} PRIVATE
    <algorithm> <array> <atomic> <chrono> <cstdint> <functional> <map> <memory> <optional> <string> <utility>
    <vector> <absl/status/status.h> <absl/status/statusor.h> <absl/strings/str_cat.h> <absl/types/span.h> ${ARG_HEADERS})
  set(CAIRN_HEADERS ${name} PARENT_SCOPE)
endfunction()

# The messages that half of the sources include, directly or not.
set(CAIRN_MESSAGE_HEADERS
  <cairn/v1/inspector.pb.h> <cairn/v1/job.pb.h> <cairn/v1/parameter_server.pb.h> <cairn/v1/replicate.pb.h>
  <cairn/v1/session.pb.h>)

# cairn_library(NAME SOURCES... [PUBLIC libs...] [PRIVATE libs...] [OWN_OPTIONS])
# OWN_OPTIONS: it is compiled with others than most, so that precompiled headers do not serve it.
function(cairn_library name)
  cmake_parse_arguments(ARG "OWN_OPTIONS" "" "SOURCES;PUBLIC;PRIVATE" ${ARGN})
  add_library(${name} STATIC ${ARG_SOURCES})
  # What we compile with is our own: who links an installed library compiles as they like.
  target_link_libraries(${name} PUBLIC $<BUILD_INTERFACE:cairn_options> ${ARG_PUBLIC} PRIVATE ${ARG_PRIVATE})
  set_target_properties(${name} PROPERTIES POSITION_INDEPENDENT_CODE ON)
  if(CAIRN_HEADERS AND NOT ARG_OWN_OPTIONS)
    target_precompile_headers(${name} REUSE_FROM ${CAIRN_HEADERS})
  endif()
endfunction()
