# Run by `cmake -P` in every build: writes OUTPUT from TEMPLATE with VERSION, BUILD_TYPE, COMPILER, CUDA and the commit
# of the checkout SOURCE_DIR. Leaves OUTPUT untouched if its contents would not change.
set(COMMIT "$ENV{CAIRN_COMMIT}")  # for builds without .git, as in deploy/Dockerfile
if(NOT COMMIT AND EXISTS ${SOURCE_DIR}/.git)  # not a source archive unpacked within the checkout of another project
  execute_process(COMMAND git -C ${SOURCE_DIR} rev-parse --short=7 HEAD
    OUTPUT_VARIABLE COMMIT OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
endif()
if(NOT COMMIT)
  set(COMMIT unknown)
endif()
configure_file(${TEMPLATE} ${OUTPUT} @ONLY)
