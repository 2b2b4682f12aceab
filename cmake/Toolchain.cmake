# Compiler, linker and sanitizers, the same for every target.
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR})
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "" FORCE)
endif()
set(CMAKE_CXX_FLAGS_RELEASE "-O2")
# Test programs take a quarter less time to compile with few optimisations; what they test is built with all.
set(SLUICE_TEST_OPTIMISATION $<$<COMPILE_LANGUAGE:CXX>:$<$<CONFIG:Release>:-O1>>)

find_program(SLUICE_CCACHE ccache)
if(SLUICE_CCACHE)
  # Paths of the repository are taken relative to the build, so that another clone of it finds what this one compiled.
  set(launcher ${CMAKE_COMMAND} -E env CCACHE_BASEDIR=${CMAKE_SOURCE_DIR} CCACHE_NOHASHDIR=1 ${SLUICE_CCACHE})
  set(CMAKE_CXX_COMPILER_LAUNCHER ${launcher})
  set(CMAKE_CUDA_COMPILER_LAUNCHER ${launcher})
endif()
find_program(SLUICE_MOLD mold)
if(SLUICE_MOLD)
  add_link_options(-fuse-ld=mold)
endif()

# The planner's wheel has only what its module calls: files are compiled together, and without sections of their own the
# functions of a file bring along its neighbours' libraries (SentencePiece, zstd), which no wheel may need.
if(SLUICE_PYTHON STREQUAL ONLY)
  add_compile_options(-ffunction-sections -fdata-sections)
  add_link_options(-Wl,--gc-sections)
endif()

add_compile_options($<$<COMPILE_LANGUAGE:CXX>:-Wall> $<$<COMPILE_LANGUAGE:CXX>:-Wextra>
                    $<$<COMPILE_LANGUAGE:CXX>:-Wno-missing-field-initializers>)
# Warnings of the program's text end a build where $CI is set, or where that is asked for. Those that hang on what an
# optimiser finds, or on which files a unity build joins, stay warnings: they differ by compiler, options and sanitizer.
if(DEFINED ENV{CI})
  set(warnings_end_builds ON)
endif()
option(SLUICE_WERROR "End the build at a compiler warning" ${warnings_end_builds})
if(SLUICE_WERROR)
  set(warnings -Werror)
  foreach(guess maybe-uninitialized array-bounds stringop-overflow stringop-overread restrict nonnull
          null-dereference free-nonheap-object dangling-pointer subobject-linkage)
    list(APPEND warnings -Wno-error=${guess})
  endforeach()
  foreach(warning ${warnings})
    add_compile_options($<$<COMPILE_LANGUAGE:CXX>:${warning}>)
  endforeach()
endif()
if(SLUICE_SANITIZE)
  add_compile_options(-fsanitize=${SLUICE_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all -g1)
  add_link_options(-fsanitize=${SLUICE_SANITIZE})
endif()
if(SLUICE_ASAN_MODULES)
  add_link_options(-fsanitize=address)
endif()
