if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release)
endif()
set(CMAKE_CXX_FLAGS_RELEASE "-O2")
set(CMAKE_CXX_FLAGS_DEBUG "-O0 -g")

find_program(CCACHE ccache)
if(CCACHE)
  # Without this, ccache gives up on every file that uses the precompiled header.
  set(CMAKE_CXX_COMPILER_LAUNCHER
    ${CMAKE_COMMAND} -E env CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime CCACHE_BASEDIR=${PROJECT_SOURCE_DIR} CCACHE_NOHASHDIR=1 ${CCACHE})
endif()

# at::parallel_for runs on one thread, silently, in any file compiled without OpenMP.
# Fused multiply-add would make initial weights depend on the processor. Nothing reads errno after a mathematical
# function; where it had to be set, no loop with a square root is vectorised.
add_compile_options(-fopenmp -ffp-contract=off -fno-math-errno)
if(SWITCHYARD_SANITIZE)
  # What the undefined-behaviour sanitizer finds ends the program, so that the test fails.
  add_compile_options(
    -fsanitize=${SWITCHYARD_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer -g1)
  add_link_options(-fsanitize=${SWITCHYARD_SANITIZE})
endif()

# Only for our own code: the headers of libraries are included as system headers.
set(SWITCHYARD_WARNINGS -Wall -Wextra -Wconversion -Wshadow)
if(SWITCHYARD_SANITIZE)
  # Through the checks that sanitizers put in, GCC sees sizes and bounds that cannot be.
  list(APPEND SWITCHYARD_WARNINGS -Wno-stringop-overflow -Wno-array-bounds)
else()
  list(APPEND SWITCHYARD_WARNINGS -Werror)
endif()
