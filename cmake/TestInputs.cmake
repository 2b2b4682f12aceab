# What the unit tests of all modules read of the repository: a test program that knows its place depends on all of these,
# and on its module's folder.
set(SLUICE_TEST_DATA_FOLDERS ${PROJECT_SOURCE_DIR}/tests/golden ${PROJECT_SOURCE_DIR}/tests/data
    ${PROJECT_SOURCE_DIR}/bench/data ${PROJECT_SOURCE_DIR}/tools)

# sluice_inputs(TEST... INPUTS path...)
#
# Declares what decides whether these tests pass, beside the programs and files that their commands and environments name:
# files and folders. `make test` then runs them only when one of all these has changed (tests/stamps.py); a test of which
# nothing is declared always runs. More calls add to it.
function(sluice_inputs)
  cmake_parse_arguments(PARSE_ARGV 0 of "" "" "INPUTS")
  set_property(TEST ${of_UNPARSED_ARGUMENTS} APPEND PROPERTY REQUIRED_FILES ${of_INPUTS})
endfunction()
