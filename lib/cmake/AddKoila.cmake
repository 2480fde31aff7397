# Build rules shared by koila's folders.

# Flags of everything koila compiles.
function(koila_compile_options target)
  target_compile_options(${target} PRIVATE -Wall -Wextra -Wno-unused-parameter)
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    # Known false reports of GCC 12 on std::optional and std::string.
    target_compile_options(${target} PRIVATE -Wno-maybe-uninitialized
      -Wno-restrict -Wno-stringop-overflow)
  endif()
  if(KOILA_SANITIZE)
    # MLIR and LibTorch are not instrumented: no checks of their classes.
    target_compile_options(${target} PRIVATE -fsanitize=address,undefined
      -fno-sanitize=vptr -fno-omit-frame-pointer -O1)
    target_link_options(${target} PRIVATE -fsanitize=address,undefined)
  endif()
endfunction()

# Flags of what includes no torch header: LLVM is built without exceptions.
function(koila_core_options target)
  koila_compile_options(${target})
  target_compile_options(${target} PRIVATE -fno-exceptions)
endfunction()

# koila_precompiled(TARGET FROM)
# Precompiled headers of another target with the same flags. A program is compiled
# as a library is, since GCC tells -fPIE from -fPIC there.
function(koila_precompiled target from)
  get_target_property(type ${target} TYPE)
  if(type STREQUAL "EXECUTABLE")
    set_target_properties(${target} PROPERTIES POSITION_INDEPENDENT_CODE OFF)
    target_compile_options(${target} PRIVATE -fPIC)
  endif()
  target_precompile_headers(${target} REUSE_FROM ${from})
endfunction()

# koila_install_rpath(TARGET)
# Where an installed target finds LibTorch. CMake itself leaves out paths below the
# build folder. In a wheel Python has loaded it before.
function(koila_install_rpath target)
  if(NOT SKBUILD)
    get_target_property(folder koila_libtorch KOILA_FOLDER)
    set_property(TARGET ${target} APPEND PROPERTY INSTALL_RPATH ${folder})
  endif()
endfunction()

# The target koila_libtorch: LibTorch of the wheel whose
# torch.utils.cmake_prefix_path is in CMAKE_PREFIX_PATH. find_package(Torch)
# would demand a CUDA toolkit beside a CUDA build of PyTorch; koila calls no
# CUDA function and needs none.
function(koila_add_libtorch)
  if(TARGET koila_libtorch)
    return()
  endif()
  find_path(KOILA_TORCH_CMAKE_DIR TorchConfig.cmake PATH_SUFFIXES Torch)
  if(NOT KOILA_TORCH_CMAKE_DIR AND Python_EXECUTABLE)
    # pip says which Python it builds for, and nothing of its PyTorch. Without
    # importing it: that takes seconds.
    execute_process(COMMAND ${Python_EXECUTABLE} -c "import importlib.util, os
print(os.path.dirname(importlib.util.find_spec('torch').origin))"
      OUTPUT_VARIABLE root OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
    find_path(KOILA_TORCH_CMAKE_DIR TorchConfig.cmake
      HINTS "${root}/share/cmake/Torch")
  endif()
  if(NOT KOILA_TORCH_CMAKE_DIR)
    message(FATAL_ERROR "LibTorch not found: pass -DCMAKE_PREFIX_PATH=$(python "
      "-c 'import torch; print(torch.utils.cmake_prefix_path)'), or "
      "-DKOILA_ENABLE_TORCH=OFF")
  endif()
  get_filename_component(root "${KOILA_TORCH_CMAKE_DIR}/../../.." ABSOLUTE)
  add_library(koila_libtorch INTERFACE)
  set_target_properties(koila_libtorch PROPERTIES KOILA_FOLDER "${root}/lib")
  target_include_directories(koila_libtorch SYSTEM INTERFACE
    "${root}/include" "${root}/include/torch/csrc/api/include")
  foreach(name torch torch_cpu c10)
    target_link_libraries(koila_libtorch INTERFACE
      "${root}/lib/${CMAKE_SHARED_LIBRARY_PREFIX}${name}${CMAKE_SHARED_LIBRARY_SUFFIX}")
  endforeach()
  # What an extension of Python needs beside it.
  add_library(koila_libtorch_python INTERFACE)
  target_link_libraries(koila_libtorch_python INTERFACE
    "${root}/lib/${CMAKE_SHARED_LIBRARY_PREFIX}torch_python${CMAKE_SHARED_LIBRARY_SUFFIX}")
endfunction()

# Sets KOILA_CUDA_HEADERS to the folders of cuda.h and nvml.h; empty without them.
# CUDAToolkit_ROOT names a toolkit, and so does the nvcc that is found: a toolkit
# of Python packages (nvidia-cuda-runtime, nvidia-nvml-dev) has its headers alone.
function(koila_find_cuda_headers)
  find_package(CUDAToolkit QUIET)
  set(hints ${CUDAToolkit_ROOT}/include ${CUDAToolkit_INCLUDE_DIRS})
  find_path(KOILA_CUDA_DRIVER_HEADERS cuda.h HINTS ${hints})
  find_path(KOILA_NVML_HEADERS nvml.h HINTS ${hints})
  set(folders "")
  if(KOILA_CUDA_DRIVER_HEADERS AND KOILA_NVML_HEADERS)
    set(folders ${KOILA_CUDA_DRIVER_HEADERS} ${KOILA_NVML_HEADERS})
  endif()
  set(KOILA_CUDA_HEADERS "${folders}" PARENT_SCOPE)
endfunction()

# koila_add_layer(NAME [DEPENDS LAYER...])
# One layer of libKoila: the sources of this folder and those below it. Its
# public headers are in the folder of the same name under include/koila.
function(koila_add_layer name)
  cmake_parse_arguments(PARSE_ARGV 1 layer "" "" "DEPENDS")
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS *.cpp)
  add_library(Koila${name} OBJECT ${sources})
  koila_core_options(Koila${name})
  add_dependencies(Koila${name} KoilaIncGen)
  # What CMake writes for a layer, data as string literals.
  target_include_directories(Koila${name} PRIVATE ${CMAKE_CURRENT_BINARY_DIR})
  koila_precompiled(Koila${name} KoilaPrecompiled)
  target_sources(Koila PRIVATE $<TARGET_OBJECTS:Koila${name}>)
  koila_declare_layer(${name} DEPENDS ${layer_DEPENDS})
endfunction()

# koila_declare_layer(NAME [DEPENDS LAYER...])
# Says of the target Koila${NAME} that it is a layer of this folder.
function(koila_declare_layer name)
  cmake_parse_arguments(PARSE_ARGV 1 layer "" "" "DEPENDS")
  file(RELATIVE_PATH folder ${PROJECT_SOURCE_DIR} ${CMAKE_CURRENT_SOURCE_DIR})
  set_property(GLOBAL APPEND_STRING PROPERTY KOILA_LAYERS
    ",\n{\"name\": \"${name}\", \"folder\": \"${folder}\", \"depends\": \"${layer_DEPENDS}\", \"objects\": \"$<TARGET_OBJECTS:Koila${name}>\"}")
endfunction()

# Writes which layers there are, for tools/dev/check_layers.py.
function(koila_write_layers file)
  get_property(layers GLOBAL PROPERTY KOILA_LAYERS)
  string(SUBSTRING "${layers}" 1 -1 layers)
  file(GENERATE OUTPUT ${file} CONTENT "[${layers}]\n")
endfunction()
