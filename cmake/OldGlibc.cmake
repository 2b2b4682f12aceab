# sluice_link_for_glibc(VERSION): Python modules of this folder run with glibc VERSION and later, whatever this
# machine's is. The compiler stays; the linker is zig's (PyPI's package `ziglang`, which ${SLUICE_ZIG}, a Python, has):
# it knows the symbols of every version. The C++ runtime is linked in.
set(SLUICE_ZIG ${Python_EXECUTABLE} CACHE FILEPATH "Python with the package ziglang")

macro(sluice_link_for_glibc version)
  execute_process(COMMAND ${SLUICE_ZIG} -m ziglang version RESULT_VARIABLE zig_fault OUTPUT_QUIET ERROR_QUIET)
  if(zig_fault)
    message(FATAL_ERROR "SLUICE_GLIBC needs zig's linker: pip install ziglang, or name a Python that has it as SLUICE_ZIG")
  endif()
  foreach(library libstdc++.a libgcc.a libgcc_s.so.1)
    execute_process(COMMAND ${CMAKE_CXX_COMPILER} -print-file-name=${library}
      OUTPUT_VARIABLE ${library} OUTPUT_STRIP_TRAILING_WHITESPACE)
  endforeach()
  file(WRITE ${CMAKE_CURRENT_BINARY_DIR}/exported "{ global: PyInit_*; local: *; };")
  string(JOIN " " CMAKE_CXX_CREATE_SHARED_MODULE
    "${SLUICE_ZIG} -m ziglang cc -target ${CMAKE_SYSTEM_PROCESSOR}-linux-gnu.${version} -shared -nostdlib++ -o <TARGET>"
    "<OBJECTS> -Wl,--start-group <LINK_LIBRARIES> -Wl,--end-group -Wl,--gc-sections -Wl,--as-needed -s"
    "-Wl,--version-script=${CMAKE_CURRENT_BINARY_DIR}/exported -Wl,-u,__cxa_pure_virtual"
    "${libstdc++.a} ${libgcc.a} ${libgcc_s.so.1} ${CMAKE_CURRENT_SOURCE_DIR}/old_glibc.c -lpthread -lm")
endmacro()
