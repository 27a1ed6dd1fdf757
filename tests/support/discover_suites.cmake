# Writes OUTPUT, a file of CTest's with one test for each suite of the googletest program PROGRAM.
#   cmake -D PROGRAM=... -D OUTPUT=... -D TIMEOUT=seconds -D LABELS=... -P discover_suites.cmake
execute_process(COMMAND "${PROGRAM}" --gtest_list_tests
  OUTPUT_VARIABLE listing RESULT_VARIABLE result TIMEOUT 60)
if(NOT result EQUAL 0)
  message(FATAL_ERROR "${PROGRAM} --gtest_list_tests: ${result}\n${listing}")
endif()

# A suite is a line without indentation that ends with a dot: "Suite.", "Prefix/Suite.", "Suite/0.  # TypeParam = int".
# Semicolons and brackets (of parameters, in comments) would disturb CMake's lists.
string(REGEX REPLACE "#[^\n]*" "" listing "${listing}")
string(REGEX MATCHALL "(^|\n)[A-Za-z0-9_/]+\\." suites "${listing}")
if(NOT suites)
  message(FATAL_ERROR "${PROGRAM} --gtest_list_tests lists no suite:\n${listing}")
endif()

# A suite is skipped if all its tests are. The output ends with failures, if there are any.
set(all_skipped "\\[  PASSED  \\] 0 tests.*\\[  SKIPPED \\] [^\n]*\n*$")

set(tests "")
foreach(suite ${suites})
  string(STRIP "${suite}" suite)
  string(REGEX REPLACE "\\.$" "" suite "${suite}")
  string(APPEND tests
    "add_test([=[${suite}]=] [=[${PROGRAM}]=] [=[--gtest_filter=${suite}.*]=])\n"
    "set_tests_properties([=[${suite}]=] PROPERTIES TIMEOUT ${TIMEOUT} LABELS [=[${LABELS}]=]\n"
    "  SKIP_REGULAR_EXPRESSION [==[${all_skipped}]==])\n")
endforeach()
file(WRITE "${OUTPUT}" "${tests}")
