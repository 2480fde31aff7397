# Build rules shared by koila's folders.

# Flags of everything koila compiles.
function(koila_compile_options target)
  target_compile_options(${target} PRIVATE -Wall -Wextra -Wno-unused-parameter)
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    # Known false reports of GCC 12 on std::optional and std::string.
    target_compile_options(${target} PRIVATE -Wno-maybe-uninitialized
      -Wno-restrict)
  endif()
endfunction()

# Flags of what includes no torch header: LLVM is built without exceptions.
function(koila_core_options target)
  koila_compile_options(${target})
  target_compile_options(${target} PRIVATE -fno-exceptions)
endfunction()
