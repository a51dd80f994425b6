# libtorch out of a torch wheel, as one imported target. find_package(Torch) of a CUDA wheel insists on a CUDA
# toolkit, and its include folder carries an fmt of its own that shadows the one spdlog was built with: so the
# headers are reached through a folder of links that leaves fmt out.
set(TORCH_DIR "" CACHE PATH "the folder `torch` of an unpacked torch wheel")
if(NOT EXISTS ${TORCH_DIR}/lib/libtorch_cpu.so)
  message(FATAL_ERROR "TORCH_DIR (${TORCH_DIR}) has no lib/libtorch_cpu.so: run `make build`, which fetches the wheel")
endif()

set(torch_headers ${CMAKE_BINARY_DIR}/torch_headers)
file(MAKE_DIRECTORY ${torch_headers})
file(GLOB entries ${TORCH_DIR}/include/*)
foreach(entry ${entries})
  get_filename_component(name ${entry} NAME)
  if(NOT name STREQUAL "fmt")
    file(CREATE_LINK ${entry} ${torch_headers}/${name} SYMBOLIC)
  endif()
endforeach()

add_library(switchyard_torch INTERFACE)
target_include_directories(switchyard_torch SYSTEM INTERFACE
  ${torch_headers} ${torch_headers}/torch/csrc/api/include)
target_link_libraries(switchyard_torch INTERFACE ${TORCH_DIR}/lib/libtorch_cpu.so ${TORCH_DIR}/lib/libc10.so)
target_link_options(switchyard_torch INTERFACE -Wl,-rpath,${TORCH_DIR}/lib)
target_compile_definitions(switchyard_torch INTERFACE USE_C10D_GLOO)
