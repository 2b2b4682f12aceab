# sluice_embed(NAME FUNCTION file...)
#
# Puts files into the library of module NAME, so that programs need no path to find them: the function
# sluice::NAME::FUNCTION() of src/NAME/embedded.h returns their stems and contents.
function(sluice_embed name function)
  set(entries "")
  foreach(file ${ARGN})
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${file})
    cmake_path(GET file STEM stem)
    file(READ ${file} content)
    string(APPEND entries "      {\"${stem}\", R\"embedded(${content})embedded\"},\n")
  endforeach()
  set(generated ${CMAKE_BINARY_DIR}/generated/${name}_${function}.cpp)
  file(CONFIGURE OUTPUT ${generated} @ONLY CONTENT
"// Made by cmake/Embed.cmake.
#include \"@name@/embedded.h\"

namespace sluice::@name@ {

const std::vector<EmbeddedFile>& @function@() {
  static const std::vector<EmbeddedFile> files = {
@entries@  };
  return files;
}

}  // namespace sluice::@name@
")
  target_sources(sluice_${name} PRIVATE ${generated})
endfunction()
