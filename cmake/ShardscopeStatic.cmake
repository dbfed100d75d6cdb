# shardscope-static: `shardscope` without any library of the system, which core/hosts copies to other hosts. It is linked from the
# same objects. Where a static library is missing, or under a sanitizer, there is none, and hosts get a copy of `shardscope` itself.
# The library of a wheel, which holds the command line and the Python module, is linked alike (app/python).

# shardscope_archives(<output> <target>...): our static libraries among these and among what they link, each once.
function(shardscope_archives output)
    set(found)
    set(ahead ${ARGN})
    while(ahead)
        list(POP_FRONT ahead name)
        string(REGEX REPLACE "^\\$<LINK_ONLY:(.*)>$" "\\1" name "${name}")
        if(NOT TARGET "${name}")
            continue()
        endif()
        get_target_property(real "${name}" ALIASED_TARGET)
        if(real)
            set(name "${real}")
        endif()
        get_target_property(type "${name}" TYPE)
        get_target_property(imported "${name}" IMPORTED)
        if(imported OR NOT type STREQUAL "STATIC_LIBRARY" OR name IN_LIST found)
            continue()
        endif()
        list(APPEND found "${name}")
        get_target_property(links "${name}" LINK_LIBRARIES)
        if(links)
            list(APPEND ahead ${links})
        endif()
    endwhile()
    set(${output} ${found} PARENT_SCOPE)
endfunction()

if(NOT SHARDSCOPE_STATIC OR SHARDSCOPE_SANITIZE)
    return()
endif()
separate_arguments(flags UNIX_COMMAND "${CMAKE_CXX_FLAGS}")
foreach(name re2 xxhash deflate zstd z crypto c stdc++)
    # The compiler knows where it looks for them.
    execute_process(COMMAND "${CMAKE_CXX_COMPILER}" ${flags} "-print-file-name=lib${name}.a" OUTPUT_VARIABLE file
                    OUTPUT_STRIP_TRAILING_WHITESPACE)
    if(NOT IS_ABSOLUTE "${file}")
        message(STATUS "No shardscope-static: there is no lib${name}.a")
        return()
    endif()
endforeach()

# What packaging/static-libraries makes; without it these programs have no HTTP.
set(SHARDSCOPE_STATIC_CURL "${CMAKE_SOURCE_DIR}/build/curl/lib/libcurl.a" CACHE FILEPATH "libcurl.a for static programs")
set(curl_archive "${SHARDSCOPE_STATIC_CURL}")
if(NOT EXISTS "${curl_archive}")
    message(STATUS "shardscope-static reads no buckets: packaging/static-libraries makes what it needs")
endif()

# shardscope_link_static(<target> <library> <re2>): links our library, and all that it needs but the C library, as .a files.
function(shardscope_link_static target library re2)
    target_sources(${target} PRIVATE "${CMAKE_SOURCE_DIR}/app/static/fmt.cpp")
    shardscope_archives(archives ${library})
    if(EXISTS "${curl_archive}")
        set(curl "${curl_archive}" -l:libssl.a)
    else()
        list(TRANSFORM archives REPLACE "^shardscope_http$" shardscope_no_http)
        set(curl)
    endif()
    set(files)
    foreach(archive ${archives})
        target_include_directories(${target} PRIVATE "$<TARGET_PROPERTY:${archive},INTERFACE_INCLUDE_DIRECTORIES>")
        list(APPEND files "$<TARGET_FILE:${archive}>")
    endforeach()
    # By file and not as targets, which would bring the shared libraries.
    target_link_libraries(${target} PRIVATE shardscope_options -Wl,--start-group ${files} -Wl,--end-group
                          ${curl} ${re2} -l:libxxhash.a -l:libdeflate.a -l:libzstd.a -l:libz.a -l:libcrypto.a)
    add_dependencies(${target} ${archives})
    set_property(TARGET ${target} APPEND PROPERTY LINK_DEPENDS "${files}")
endfunction()

# What `shardscope` is linked from, and its sources.
set(shardscope_static_rooms shardscope_cli)
set(shardscope_static_sources)
if(SHARDSCOPE_HTTPLIB_HEADER)
    list(APPEND shardscope_static_rooms shardscope_page)
else()
    message(STATUS "shardscope-static serves no page: packaging/static-libraries makes what it needs")
    list(APPEND shardscope_static_sources "${CMAKE_SOURCE_DIR}/app/static/no_page_server.cpp")
endif()

add_executable(shardscope-static static/shardscope_static.cpp ${shardscope_static_sources})
set_target_properties(shardscope-static PROPERTIES RUNTIME_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/libexec/shardscope")
target_link_options(shardscope-static PRIVATE -static-pie -Wl,--gc-sections $<$<CONFIG:Release>:-s>)
shardscope_link_static(shardscope-static "${shardscope_static_rooms}" -l:libre2.a)
# Hosts get what was built last.
add_dependencies(shardscope shardscope-static)
