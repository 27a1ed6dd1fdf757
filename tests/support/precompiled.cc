// Empty: CMake wants a source where it precompiles headers (CMakeLists.txt of tests).
