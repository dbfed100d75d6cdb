# What all targets share: language level, warnings, sanitizers, ccache, linker; and the two helpers that
# every room uses, so that a room's CMakeLists.txt is a list of files and of the rooms it may include.

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_CXX_VISIBILITY_PRESET hidden)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/bin")

if(NOT CMAKE_BUILD_TYPE)
    set(CMAKE_BUILD_TYPE Release)
endif()

find_program(CCACHE_PROGRAM ccache)
if(CCACHE_PROGRAM AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
    # Paths relative to the source tree, so that build directories and clones share what they compile.
    set(CMAKE_CXX_COMPILER_LAUNCHER "${CMAKE_COMMAND}" -E env CCACHE_BASEDIR=${CMAKE_SOURCE_DIR} CCACHE_NOHASHDIR=1
        CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime "${CCACHE_PROGRAM}")
endif()

add_library(shardscope_options INTERFACE)
target_compile_options(shardscope_options INTERFACE -Wall -Wextra -Wnon-virtual-dtor -Woverloaded-virtual
                       -Wimplicit-fallthrough -Wno-missing-field-initializers)
# Where sources share a compiler run, clang takes an alias that two of them declare alike for one that hides the other.
if(NOT (SHARDSCOPE_UNITY AND CMAKE_CXX_COMPILER_ID MATCHES Clang))
    target_compile_options(shardscope_options INTERFACE -Wshadow)
endif()
if(CMAKE_CXX_COMPILER_ID MATCHES Clang)
    target_compile_options(shardscope_options INTERFACE -Wthread-safety) # of guarded members (core/base/mutex.h)
endif()
if(SHARDSCOPE_WERROR)
    target_compile_options(shardscope_options INTERFACE -Werror)
endif()
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    # g++ 12 reports false positives from inlined std::string and std::vector code at -O2.
    target_compile_options(shardscope_options INTERFACE -Wno-restrict -Wno-maybe-uninitialized -Wno-stringop-overflow
                           -Wno-array-bounds -Wno-stringop-overread)
endif()
if(SHARDSCOPE_SANITIZE)
    target_compile_options(shardscope_options INTERFACE -fsanitize=${SHARDSCOPE_SANITIZE} -fno-omit-frame-pointer)
    target_link_options(shardscope_options INTERFACE -fsanitize=${SHARDSCOPE_SANITIZE})
    if(SHARDSCOPE_SANITIZE MATCHES "undefined")
        target_compile_options(shardscope_options INTERFACE -fno-sanitize-recover=undefined)
    endif()
    if(SHARDSCOPE_SANITIZE MATCHES "address")
        target_compile_options(shardscope_options INTERFACE -D__SANITIZE_ADDRESS__=1) # as g++ does, and clang 14 does not
    endif()
endif()

# For code around the core: the command line and the tests are templates of other libraries without end (options, JSON,
# test macros). Under a sanitizer they are not optimized, and the address sanitizer alone checks their pointers, which takes
# about half the time to build; the core is checked in full.
add_library(shardscope_light INTERFACE)
if(SHARDSCOPE_SANITIZE)
    target_compile_options(shardscope_light INTERFACE -O0)
endif()
if(SHARDSCOPE_SANITIZE MATCHES "undefined")
    target_compile_options(shardscope_light INTERFACE -fno-sanitize=null,alignment,object-size,vptr,pointer-overflow)
endif()
if(SHARDSCOPE_FUZZ)
    # What decodes is instrumented for coverage; only the fuzz targets get libFuzzer's main.
    target_compile_options(shardscope_light INTERFACE -fno-sanitize=fuzzer-no-link)
    target_compile_options(shardscope_options INTERFACE -fsanitize=fuzzer-no-link)
    target_link_options(shardscope_options INTERFACE -fsanitize=fuzzer-no-link)
endif()

find_program(MOLD_PROGRAM mold)
# A cross compiler does not find it. The linker of clang takes ten times as long for what is instrumented.
if(MOLD_PROGRAM AND NOT CMAKE_CROSSCOMPILING)
    target_link_options(shardscope_options INTERFACE -fuse-ld=mold)
endif()

# shardscope_room(<name> SOURCES ... [EXPORTS ...] [PUBLIC ...] [PRIVATE ...] [BASE dir])
# A static library `shardscope_<name>` (alias `shardscope::<name>`). EXPORTS lists the folders or headers, relative to
# BASE (default: core), that others may include (default: the folder <name>). They are reached through a directory that holds nothing
# else, so an include of a room that is not linked does not compile.
function(shardscope_room name)
    cmake_parse_arguments(ROOM "" "BASE" "SOURCES;EXPORTS;PUBLIC;PRIVATE" ${ARGN})
    if(NOT ROOM_BASE)
        set(ROOM_BASE "${CMAKE_SOURCE_DIR}/core")
    endif()
    if(NOT ROOM_EXPORTS)
        set(ROOM_EXPORTS ${name})
    endif()
    add_library(shardscope_${name} STATIC ${ROOM_SOURCES})
    add_library(shardscope::${name} ALIAS shardscope_${name})
    # A few sources per compiler run: the headers of the libraries are most of what is compiled.
    set_target_properties(shardscope_${name} PROPERTIES UNITY_BUILD ${SHARDSCOPE_UNITY} UNITY_BUILD_BATCH_SIZE 16)
    set(exported "${CMAKE_BINARY_DIR}/rooms/${name}")
    foreach(item ${ROOM_EXPORTS})
        get_filename_component(parent "${exported}/${item}" DIRECTORY)
        file(MAKE_DIRECTORY "${parent}")
        file(CREATE_LINK "${ROOM_BASE}/${item}" "${exported}/${item}" SYMBOLIC)
    endforeach()
    # The room's own headers, also those that it does not export.
    file(RELATIVE_PATH own "${ROOM_BASE}" "${CMAKE_CURRENT_SOURCE_DIR}")
    get_filename_component(parent "${CMAKE_BINARY_DIR}/rooms/own/${name}/${own}" DIRECTORY)
    file(MAKE_DIRECTORY "${parent}")
    file(CREATE_LINK "${CMAKE_CURRENT_SOURCE_DIR}" "${CMAKE_BINARY_DIR}/rooms/own/${name}/${own}" SYMBOLIC)
    target_include_directories(shardscope_${name} PUBLIC "${exported}"
                               PRIVATE "${CMAKE_BINARY_DIR}/rooms/own/${name}")
    target_link_libraries(shardscope_${name} PUBLIC ${ROOM_PUBLIC} PRIVATE shardscope_options ${ROOM_PRIVATE})
    # What a fuzz target runs many times a second is checked in full. The formats spend their time in the rooms below them: they
    # need the coverage alone, and build in less than half of the time without the optimizer. All else is light code.
    if(SHARDSCOPE_FUZZ AND name MATCHES "^(tensor_files|format_.*)$")
        target_compile_options(shardscope_${name} PRIVATE -O0 -fno-sanitize=null,alignment,object-size,vptr,pointer-overflow)
    elseif(SHARDSCOPE_FUZZ AND NOT name MATCHES "^(base|model|storage|encoding|hosts|places|format)$")
        target_link_libraries(shardscope_${name} PRIVATE shardscope_light)
    elseif(SHARDSCOPE_SANITIZE STREQUAL "thread" AND NOT name MATCHES "^(base|storage|encoding|execute|hosts|cluster|places)$")
        target_link_libraries(shardscope_${name} PRIVATE shardscope_light) # the others are where threads spend their time
    endif()
endfunction()
