# With GRADUS_CUDA: libgradus_cuda.so from src/cuda, the kernels (*.cu) by nvcc and all else by the
# ordinary compiler. nvcc is $CUDACXX, the one on the PATH or in /usr/local/cuda, or the one that
# `tools/setup --cuda` puts into .deps/cuda.
# gradus_cuda_kernels: the kernels and their operators alone, for tests and benchmarks of them.
set(GRADUS_CUDA_ARCHITECTURES "80;86;89;90" CACHE STRING
  "Compute capabilities of the kernels; PTX of the last goes along for newer devices")

function(gradus_find_nvcc)
  if(NOT GRADUS_NVCC AND DEFINED ENV{CUDACXX})
    set(GRADUS_NVCC "$ENV{CUDACXX}" CACHE FILEPATH "CUDA's compiler" FORCE)
  endif()
  if(NOT GRADUS_NVCC)
    find_program(GRADUS_NVCC nvcc HINTS /usr/local/cuda/bin)
  endif()
  if(NOT GRADUS_NVCC)
    file(GLOB own "${PROJECT_SOURCE_DIR}/.deps/cuda/nvidia/cu*/bin")
    find_program(GRADUS_NVCC nvcc PATHS ${own})
  endif()
  if(NOT GRADUS_NVCC)
    message(FATAL_ERROR "GRADUS_CUDA: no nvcc was found on the PATH or in .deps/cuda. \
Run tools/setup --cuda, or set CUDACXX to nvcc.")
  endif()
endfunction()

# Folders with cuda_runtime.h and what LibTorch's CUDA headers include: nvcc's own first, then those
# beside torch/.
function(gradus_find_cuda_headers result)
  get_filename_component(compiler "${GRADUS_NVCC}" REALPATH)
  get_filename_component(toolkit "${compiler}" DIRECTORY)
  get_filename_component(toolkit "${toolkit}" DIRECTORY)
  file(GLOB beside_torch "${LIBTORCH}/../nvidia/cu*/include")
  set(target "${toolkit}/targets/${CMAKE_SYSTEM_PROCESSOR}-linux")
  set(found "${toolkit}/include" "${target}/include" ${beside_torch})
  set(folders "")
  foreach(folder IN LISTS found)
    if(EXISTS "${folder}/cuda_runtime.h" OR EXISTS "${folder}/cublas_v2.h")
      get_filename_component(folder "${folder}" REALPATH)
      list(APPEND folders "${folder}")
      if(EXISTS "${folder}/cccl/nv/target")
        list(APPEND folders "${folder}/cccl")
      endif()
    endif()
  endforeach()
  list(REMOVE_DUPLICATES folders)
  set(${result} "${folders}" PARENT_SCOPE)
  set(libraries ${LIBTORCH_RUNTIME_DIRS} "${toolkit}/lib64" "${toolkit}/lib" "${target}/lib")
  find_library(GRADUS_CUDART NAMES libcudart.so.13 libcudart.so.12 cudart
    PATHS ${libraries} NO_DEFAULT_PATH)
  if(NOT GRADUS_CUDART)
    message(FATAL_ERROR "GRADUS_CUDA: no libcudart.so in ${libraries}. \
It belongs to the packages that the CUDA torch asks for.")
  endif()
endfunction()

# The folder with nccl.h: beside torch/, where pip puts the NCCL that torch was built with, else the
# toolkit's or the system's. Without it the plugin has no NCCL.
function(gradus_find_nccl result)
  file(GLOB beside_torch "${LIBTORCH}/../nvidia/nccl/include" "${LIBTORCH}/../nvidia/cu*/include")
  find_path(GRADUS_NCCL_INCLUDE nccl.h PATHS ${beside_torch} NO_DEFAULT_PATH)
  find_path(GRADUS_NCCL_INCLUDE nccl.h PATHS ${GRADUS_CUDA_HEADERS})
  if(GRADUS_NCCL_INCLUDE)
    message(STATUS "CUDA plugin: NCCL's header in ${GRADUS_NCCL_INCLUDE}")
    set(${result} "${GRADUS_NCCL_INCLUDE}" PARENT_SCOPE)
  else()
    message(STATUS "CUDA plugin: no nccl.h was found; several processes cannot train on GPUs with \
NCCL. It is in the package nvidia-nccl-cu13, which the CUDA torch asks for.")
    set(${result} "" PARENT_SCOPE)
  endif()
endfunction()

# gradus_compile_kernels(OBJECTS file.cu...): one object file per kernel file; paths in OBJECTS.
function(gradus_compile_kernels objects)
  set(flags -O3 -std=c++20 "-I${PROJECT_SOURCE_DIR}/src" -Xcompiler -fPIC,-Wall,-Wextra
    --threads 2)
  foreach(folder IN LISTS GRADUS_CUDA_HEADERS)
    list(APPEND flags -isystem "${folder}")
  endforeach()
  foreach(architecture IN LISTS GRADUS_CUDA_ARCHITECTURES)
    list(APPEND flags "-gencode=arch=compute_${architecture},code=sm_${architecture}")
  endforeach()
  list(GET GRADUS_CUDA_ARCHITECTURES -1 last)
  list(APPEND flags "-gencode=arch=compute_${last},code=compute_${last}")
  set(made "")
  foreach(source IN LISTS ARGN)
    get_filename_component(name "${source}" NAME)
    set(object "${PROJECT_BINARY_DIR}/cuda/${name}.o")
    add_custom_command(OUTPUT "${object}"
      COMMAND "${GRADUS_NVCC}" -c ${flags} -ccbin "${CMAKE_CXX_COMPILER}"
        -MD -MF "${object}.d" -o "${object}" "${source}"
      DEPENDS "${source}" DEPFILE "${object}.d"
      COMMENT "Compiling ${name} with nvcc" VERBATIM COMMAND_EXPAND_LISTS)
    list(APPEND made "${object}")
  endforeach()
  set(${objects} "${made}" PARENT_SCOPE)
endfunction()

function(gradus_add_cuda_plugin)
  foreach(library torch_cuda c10_cuda)
    if(NOT EXISTS "${LIBTORCH}/lib/lib${library}.so")
      message(FATAL_ERROR "GRADUS_CUDA: ${LIBTORCH}/lib has no lib${library}.so. \
Set LIBTORCH to the torch/ folder of a torch with CUDA, e.g. of a Python environment.")
    endif()
    add_library(LibTorch::${library} SHARED IMPORTED)
    set_target_properties(LibTorch::${library} PROPERTIES
      IMPORTED_LOCATION "${LIBTORCH}/lib/lib${library}.so")
  endforeach()
  gradus_find_nvcc()
  gradus_find_cuda_headers(GRADUS_CUDA_HEADERS)
  message(STATUS
    "CUDA plugin: ${GRADUS_NVCC} for sm_${GRADUS_CUDA_ARCHITECTURES}, ${GRADUS_CUDART}")
  file(MAKE_DIRECTORY "${PROJECT_BINARY_DIR}/cuda")

  # torch_cuda registers itself when loaded; nothing names it, so the linker is told to keep it
  add_library(gradus_torch_cuda INTERFACE)
  target_include_directories(gradus_torch_cuda SYSTEM INTERFACE ${GRADUS_CUDA_HEADERS})
  target_link_libraries(gradus_torch_cuda INTERFACE gradus_headers "-Wl,--no-as-needed"
    LibTorch::torch_cuda LibTorch::c10_cuda "-Wl,--as-needed" "${GRADUS_CUDART}")

  file(GLOB kernels CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/src/cuda/kernels/*.cu")
  gradus_compile_kernels(objects ${kernels})
  file(GLOB operators CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/src/cuda/kernels/*.cpp")
  add_custom_target(gradus_cuda_objects DEPENDS ${objects})
  add_library(gradus_cuda_kernels OBJECT ${operators})
  add_dependencies(gradus_cuda_kernels gradus_cuda_objects)
  target_link_libraries(gradus_cuda_kernels PUBLIC gradus_torch_cuda INTERFACE ${objects})
  gradus_flags(gradus_cuda_kernels)

  file(GLOB sources CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/src/cuda/*.cpp")
  add_library(gradus_cuda SHARED ${sources} "${PROJECT_SOURCE_DIR}/src/core/fmt.cpp")
  # not with libgradus.so: a program may have its modules linked in, and operators may be registered
  # only once
  target_link_libraries(gradus_cuda PRIVATE gradus_cuda_kernels gradus_torch_cuda)
  gradus_flags(gradus_cuda)
  gradus_find_nccl(nccl)
  if(nccl)
    set_source_files_properties("${PROJECT_SOURCE_DIR}/src/cuda/nccl.cpp" PROPERTIES
      COMPILE_DEFINITIONS GRADUS_WITH_NCCL=1)
    target_include_directories(gradus_cuda SYSTEM PRIVATE "${nccl}")
  endif()
  set_target_properties(gradus_cuda PROPERTIES
    LINKER_LANGUAGE CXX BUILD_RPATH "\$ORIGIN;${LIBTORCH_RPATH}")
endfunction()
