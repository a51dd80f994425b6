# libtorch out of a torch wheel, as one interface target. find_package(Torch) of a CUDA wheel insists on a CUDA
# toolkit, and its include folder carries an fmt of its own that shadows the one spdlog was built with: so the
# headers are reached through a folder of links that leaves fmt out.
file(STRINGS ${PROJECT_SOURCE_DIR}/cmake/torch_version torch_version)
set(TORCH_DIR "${PROJECT_SOURCE_DIR}/.deps/torch-${torch_version}/torch" CACHE PATH
  "the folder `torch` of an unpacked torch wheel")
if(NOT EXISTS ${TORCH_DIR}/lib/libtorch_cpu.so)
  message(FATAL_ERROR
    "TORCH_DIR (${TORCH_DIR}) has no lib/libtorch_cpu.so: run `make build`, which fetches the wheel")
endif()

set(torch_headers ${CMAKE_BINARY_DIR}/torch_headers)
file(GLOB entries RELATIVE ${TORCH_DIR}/include ${TORCH_DIR}/include/*)
list(REMOVE_ITEM entries fmt)
file(GLOB stale RELATIVE ${torch_headers} ${torch_headers}/*)
list(REMOVE_ITEM stale ${entries})
foreach(name ${stale}) # left by another version of torch
  file(REMOVE ${torch_headers}/${name})
endforeach()
file(MAKE_DIRECTORY ${torch_headers})
foreach(name ${entries})
  file(CREATE_LINK ${TORCH_DIR}/include/${name} ${torch_headers}/${name} SYMBOLIC)
endforeach()

# The OpenMP runtime that libtorch itself loads: a second one would bring a second set of threads.
file(GLOB torch_openmp ${TORCH_DIR}/lib/libgomp*.so* ${TORCH_DIR}/../torch.libs/libgomp*.so*)

add_library(switchyard_torch INTERFACE)
target_include_directories(switchyard_torch SYSTEM INTERFACE
  ${torch_headers} ${torch_headers}/torch/csrc/api/include)
target_link_libraries(switchyard_torch INTERFACE
  ${TORCH_DIR}/lib/libtorch_cpu.so ${TORCH_DIR}/lib/libc10.so ${torch_openmp})
target_link_options(switchyard_torch INTERFACE -Wl,-rpath,${TORCH_DIR}/lib)
target_compile_definitions(switchyard_torch INTERFACE USE_C10D_GLOO)
