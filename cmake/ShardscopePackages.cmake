# What is installed, in two components, and the packages made of them:
#   shardscope       the command line, its manual, completions and documentation; needs no Qt
#   shardscope-gui   the window, its desktop entry, icons and the sample checkpoint
include(GNUInstallDirs)

set(SHARDSCOPE_MAINTAINER "Shardscope maintainers <maintainers@shardscope.invalid>" CACHE STRING
    "Name and address that packages carry as their maintainer's")
set(SHARDSCOPE_APP_ID io.github.shardscope.shardscope)
set(linux "${CMAKE_SOURCE_DIR}/packaging/linux")
set(made "${CMAKE_BINARY_DIR}/packaging")

execute_process(COMMAND ${CMAKE_COMMAND} -E env LC_ALL=C date --utc --rfc-email "--date=${SHARDSCOPE_RELEASE_DATE}"
                OUTPUT_VARIABLE SHARDSCOPE_RELEASE_STAMP OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
configure_file("${linux}/changelog.in" "${made}/changelog" @ONLY)

# shardscope_compressed(<output> <input>): for manual pages and changelogs, which Debian wants compressed, without the
# time of the build inside.
function(shardscope_compressed output input)
    add_custom_command(OUTPUT "${output}" COMMAND "${GZIP_PROGRAM}" -9nc "${input}" > "${output}" DEPENDS "${input}")
    set_property(GLOBAL APPEND PROPERTY SHARDSCOPE_PACKAGED "${output}")
endfunction()

# shardscope_documents(<component> <file or directory>...): share/doc/<component>, with copyright and changelog.
function(shardscope_documents component)
    set(place "${CMAKE_INSTALL_DATAROOTDIR}/doc/${component}")
    foreach(item ${ARGN})
        if(IS_DIRECTORY "${CMAKE_SOURCE_DIR}/${item}")
            install(DIRECTORY "${CMAKE_SOURCE_DIR}/${item}" DESTINATION "${place}" COMPONENT ${component})
        else()
            install(FILES "${CMAKE_SOURCE_DIR}/${item}" DESTINATION "${place}" COMPONENT ${component})
        endif()
    endforeach()
    install(FILES "${linux}/copyright" "${made}/changelog.gz" DESTINATION "${place}" COMPONENT ${component})
endfunction()

shardscope_compressed("${made}/changelog.gz" "${made}/changelog")

# ---- shardscope
install(TARGETS shardscope COMPONENT shardscope)
if(TARGET shardscope-static)
    # Where core/hosts/launch.cpp looks for it, from bin.
    install(TARGETS shardscope-static DESTINATION libexec/shardscope COMPONENT shardscope)
    install(FILES "${linux}/lintian-overrides" RENAME shardscope
            DESTINATION "${CMAKE_INSTALL_DATAROOTDIR}/lintian/overrides" COMPONENT shardscope)
endif()
foreach(module shardscope_torch_module shardscope_nccl)
    if(TARGET ${module})
        # Where core/accelerator/torch_library.cpp looks for it, from bin.
        install(TARGETS ${module} LIBRARY DESTINATION libexec/shardscope COMPONENT shardscope OPTIONAL)
        list(APPEND modules ${module})
    endif()
endforeach()
install(DIRECTORY "${CMAKE_BINARY_DIR}/manual/" DESTINATION "${CMAKE_INSTALL_MANDIR}/man1" COMPONENT shardscope
        FILES_MATCHING PATTERN "*.1.gz")
install(FILES "${CMAKE_BINARY_DIR}/completions/shardscope"
        DESTINATION "${CMAKE_INSTALL_DATAROOTDIR}/bash-completion/completions" COMPONENT shardscope)
install(FILES "${CMAKE_BINARY_DIR}/completions/_shardscope"
        DESTINATION "${CMAKE_INSTALL_DATAROOTDIR}/zsh/vendor-completions" COMPONENT shardscope)
install(FILES "${CMAKE_BINARY_DIR}/completions/shardscope.fish"
        DESTINATION "${CMAKE_INSTALL_DATAROOTDIR}/fish/vendor_completions.d" COMPONENT shardscope)
shardscope_documents(shardscope docs/cli.md docs/recipes.md docs/performance.md docs/formats docs/schemas)

# ---- shardscope-gui
if(SHARDSCOPE_GUI)
    configure_file("${linux}/${SHARDSCOPE_APP_ID}.metainfo.xml.in" "${made}/${SHARDSCOPE_APP_ID}.metainfo.xml" @ONLY)
    configure_file("${linux}/shardscope-gui.1.in" "${made}/shardscope-gui.1" @ONLY)
    shardscope_compressed("${made}/shardscope-gui.1.gz" "${made}/shardscope-gui.1")

    install(TARGETS shardscope-gui COMPONENT shardscope-gui)
    install(FILES "${made}/shardscope-gui.1.gz" DESTINATION "${CMAKE_INSTALL_MANDIR}/man1" COMPONENT shardscope-gui)
    install(FILES "${linux}/${SHARDSCOPE_APP_ID}.desktop"
            DESTINATION "${CMAKE_INSTALL_DATAROOTDIR}/applications" COMPONENT shardscope-gui)
    install(FILES "${made}/${SHARDSCOPE_APP_ID}.metainfo.xml"
            DESTINATION "${CMAKE_INSTALL_DATAROOTDIR}/metainfo" COMPONENT shardscope-gui)
    install(FILES "${linux}/${SHARDSCOPE_APP_ID}.mime.xml" RENAME "${SHARDSCOPE_APP_ID}.xml"
            DESTINATION "${CMAKE_INSTALL_DATAROOTDIR}/mime/packages" COMPONENT shardscope-gui)
    set(icons "${CMAKE_INSTALL_DATAROOTDIR}/icons/hicolor")
    install(FILES "${CMAKE_SOURCE_DIR}/resources/icons/shardscope.svg" DESTINATION "${icons}/scalable/apps"
            COMPONENT shardscope-gui)
    foreach(size 48 256)
        install(FILES "${CMAKE_SOURCE_DIR}/resources/icons/shardscope-${size}.png" RENAME shardscope.png
                DESTINATION "${icons}/${size}x${size}/apps" COMPONENT shardscope-gui)
    endforeach()
    shardscope_documents(shardscope-gui docs/user-guide.md)
    install(DIRECTORY "${CMAKE_SOURCE_DIR}/docs/images" DESTINATION "${CMAKE_INSTALL_DATAROOTDIR}/doc/shardscope-gui"
            COMPONENT shardscope-gui FILES_MATCHING PATTERN "*.png")
endif()

# All that is installed, without the tests.
get_property(packaged GLOBAL PROPERTY SHARDSCOPE_PACKAGED)
add_custom_target(shardscope_packaged ALL DEPENDS ${packaged})
add_custom_target(installable)
add_dependencies(installable shardscope shardscope_manual_pages shardscope_packaged ${modules})
if(SHARDSCOPE_GUI)
    add_dependencies(installable shardscope-gui)
endif()
set(CMAKE_SKIP_INSTALL_ALL_DEPENDENCY ON)

# ---- Debian packages: packaging/deb
set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME shardscope)
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "") # else it becomes the first line of every package's description
set(CPACK_PACKAGE_CONTACT "${SHARDSCOPE_MAINTAINER}")
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_INSTALL_DEFAULT_DIRECTORY_PERMISSIONS OWNER_READ OWNER_WRITE OWNER_EXECUTE GROUP_READ GROUP_EXECUTE
    WORLD_READ WORLD_EXECUTE)
set(CPACK_COMPONENTS_GROUPING IGNORE)
set(CPACK_COMPONENTS_ALL shardscope)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_COMPRESSION_TYPE xz)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_SECTION science)
set(CPACK_DEBIAN_SHARDSCOPE_PACKAGE_NAME shardscope)
set(about "Shardscope opens the checkpoints of large training runs where they lie,
says which rank holds which part of which tensor and whether the
checkpoint is whole and sane, and converts it to another format or
sharding, bit for bit.

PyTorch DCP, torch.save files and safetensors are read and written.
Nothing that is stored in a checkpoint is run.")
set(CPACK_DEBIAN_SHARDSCOPE_DESCRIPTION "inspect, validate, convert and reshard distributed checkpoints
${about}

This package has the command line. Where one rank reads for all
(--on ranks,broadcast) it opens libtorch, and for --compute gpu
NVRTC: of the active Python environment, or as --torch-library says.")
if(SHARDSCOPE_GUI)
    list(APPEND CPACK_COMPONENTS_ALL shardscope-gui)
    set(CPACK_DEBIAN_SHARDSCOPE-GUI_PACKAGE_NAME shardscope-gui)
    # The window runs conversions as processes of the command line.
    set(CPACK_DEBIAN_SHARDSCOPE-GUI_PACKAGE_DEPENDS "shardscope (= ${PROJECT_VERSION})")
    set(CPACK_DEBIAN_SHARDSCOPE-GUI_PACKAGE_RECOMMENDS "qt6-wayland")
    set(CPACK_DEBIAN_SHARDSCOPE-GUI_DESCRIPTION "window that shows, validates and converts distributed checkpoints
${about}

This package has the window: tree, placement map, tensors, files,
findings, comparison, guided conversion and jobs; and a sample.")
endif()
include(CPack)
