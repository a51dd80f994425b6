# One source folder is one static library that links only the folders it may include. tests/check_folders.py
# reads the same lines and refuses any other include.
function(switchyard_folder name)
  cmake_parse_arguments(arg "" "" "DEPENDS;LIBRARIES" ${ARGN})
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/${name}/*.cpp)
  add_library(switchyard_${name} STATIC ${sources})
  target_include_directories(switchyard_${name} PUBLIC ${CMAKE_CURRENT_SOURCE_DIR})
  target_compile_options(switchyard_${name} PRIVATE ${SWITCHYARD_WARNINGS})
  target_link_libraries(switchyard_${name} PUBLIC switchyard_torch fmt::fmt ${arg_LIBRARIES})
  foreach(dependency ${arg_DEPENDS})
    target_link_libraries(switchyard_${name} PUBLIC switchyard_${dependency})
  endforeach()
  if(name STREQUAL "base")
    target_precompile_headers(switchyard_base PRIVATE
      <fmt/format.h> <map> <memory> <optional> <string> <utility> <vector> <ATen/ATen.h>)
  else()
    target_precompile_headers(switchyard_${name} REUSE_FROM switchyard_base)
  endif()
endfunction()

# switchyard_test(moe/router_test switchyard_moe): builds tests/moe/router_test.cpp, runs it under that name.
# The target tests_moe builds all tests of that folder.
function(switchyard_test path)
  string(REPLACE "/" "_" name ${path})
  add_executable(${name} ${path}.cpp)
  target_include_directories(${name} PRIVATE ${CMAKE_CURRENT_SOURCE_DIR})
  target_compile_options(${name} PRIVATE ${SWITCHYARD_WARNINGS})
  target_compile_definitions(${name} PRIVATE SWITCHYARD_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
  target_link_libraries(${name} PRIVATE ${ARGN} switchyard_poison GTest::gtest_main)
  target_precompile_headers(${name} REUSE_FROM switchyard_base)
  add_test(NAME ${path} COMMAND ${name})
  # Tests run side by side: threads that wait must not spin on the cores of others.
  set_tests_properties(${path} PROPERTIES TIMEOUT 300 ENVIRONMENT OMP_WAIT_POLICY=passive)

  get_filename_component(folder ${path} DIRECTORY)
  string(REPLACE "/" "_" folder ${folder})
  if(NOT TARGET tests_${folder})
    add_custom_target(tests_${folder})
  endif()
  add_dependencies(tests_${folder} ${name})
endfunction()

# switchyard_tests(moe switchyard_moe): switchyard_test() for every tests/moe/*_test.cpp.
function(switchyard_tests folder)
  file(GLOB sources CONFIGURE_DEPENDS RELATIVE ${CMAKE_CURRENT_SOURCE_DIR} ${folder}/*_test.cpp)
  foreach(source ${sources})
    string(REPLACE ".cpp" "" path ${source})
    switchyard_test(${path} ${ARGN})
  endforeach()
endfunction()
