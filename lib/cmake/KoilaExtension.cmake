# Extensions of koila, of other projects: see docs/user/Extensions.md.

# koila_add_extension(NAME DIALECT NAMESPACE TABLEGEN FILE.td SOURCES FILE...)
#
# NAME.so, for `--load-dialect-plugin` and `koila.load_extension`. Of the dialect
# NAMESPACE and the operations in FILE.td it generates FILE.h.inc, FILE.cpp.inc,
# FILEDialect.h.inc and FILEDialect.cpp.inc, which the sources include.
function(koila_add_extension name)
  cmake_parse_arguments(PARSE_ARGV 1 extension "" "DIALECT;TABLEGEN" "SOURCES")
  foreach(needed DIALECT TABLEGEN SOURCES)
    if(NOT extension_${needed})
      message(FATAL_ERROR "koila_add_extension(${name}) needs ${needed}")
    endif()
  endforeach()
  if(extension_UNPARSED_ARGUMENTS)
    message(FATAL_ERROR "koila_add_extension(${name}) knows nothing of "
      "${extension_UNPARSED_ARGUMENTS}")
  endif()
  get_filename_component(source ${extension_TABLEGEN} ABSOLUTE)
  get_filename_component(stem ${extension_TABLEGEN} NAME_WE)
  set(folder ${CMAKE_CURRENT_BINARY_DIR}/${name})
  file(MAKE_DIRECTORY ${folder})
  get_target_property(headers Koila::Koila INTERFACE_INCLUDE_DIRECTORIES)
  set(includes)
  foreach(include ${headers} ${MLIR_INCLUDE_DIRS} ${LLVM_INCLUDE_DIRS}
      ${CMAKE_CURRENT_SOURCE_DIR})
    list(APPEND includes -I ${include})
  endforeach()
  set(generated)
  foreach(output
      "${stem}.h.inc -gen-op-decls"
      "${stem}.cpp.inc -gen-op-defs"
      "${stem}Dialect.h.inc -gen-dialect-decls -dialect=${extension_DIALECT}"
      "${stem}Dialect.cpp.inc -gen-dialect-defs -dialect=${extension_DIALECT}")
    separate_arguments(output)
    list(POP_FRONT output file)
    if(output MATCHES "gen-op")
      list(APPEND output -op-include-regex=^${extension_DIALECT}\\.)
    endif()
    add_custom_command(OUTPUT ${folder}/${file}
      COMMAND ${MLIR_TABLEGEN_EXE} ${output} ${includes} ${source}
        -o ${folder}/${file} -d ${folder}/${file}.d
      DEPENDS ${source} DEPFILE ${folder}/${file}.d VERBATIM)
    list(APPEND generated ${folder}/${file})
  endforeach()
  add_library(${name} MODULE ${extension_SOURCES} ${generated})
  # With hidden symbols it would have identities of its own for MLIR's traits.
  set_target_properties(${name} PROPERTIES PREFIX "" SUFFIX ".so"
    CXX_VISIBILITY_PRESET default VISIBILITY_INLINES_HIDDEN OFF)
  target_include_directories(${name} PRIVATE ${folder})
  target_include_directories(${name} SYSTEM PRIVATE ${MLIR_INCLUDE_DIRS}
    ${LLVM_INCLUDE_DIRS})
  separate_arguments(definitions NATIVE_COMMAND "${LLVM_DEFINITIONS}")
  target_compile_options(${name} PRIVATE ${definitions}
    $<$<NOT:$<BOOL:${LLVM_ENABLE_RTTI}>>:-fno-rtti>)
  target_link_libraries(${name} PRIVATE Koila::Koila)
endfunction()
