find_package(fmt REQUIRED)
find_package(spdlog REQUIRED)
find_package(yaml-cpp REQUIRED)
find_package(nlohmann_json REQUIRED)
find_package(CLI11 REQUIRED)
find_package(Threads REQUIRED)
find_package(ZLIB REQUIRED)

# Not every distribution ships zstd with a CMake package.
find_path(ZSTD_INCLUDE_DIR zstd.h REQUIRED)
find_library(ZSTD_LIBRARY zstd REQUIRED)
add_library(switchyard_zstd INTERFACE)
target_include_directories(switchyard_zstd SYSTEM INTERFACE ${ZSTD_INCLUDE_DIR})
target_link_libraries(switchyard_zstd INTERFACE ${ZSTD_LIBRARY})

# Two libraries that come without files for CMake.
foreach(name pcre2-8 utf8proc)
  find_library(library_${name} ${name} REQUIRED)
endforeach()
