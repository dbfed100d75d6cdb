# cmake -DOUTPUT=FILE.cpp -DFILES=A.html;B.js [-DBASE=DIR] -DHEADER=X.h -DSPACE=NAMESPACE -DTYPE=T -DFUNCTION=F -P EmbedFiles.cmake:
# files as text of a program; F() returns {name, text} of each, the name relative to BASE if there is one, as T; HEADER declares both.
set(text "// Made from the files that it holds.\n#include \"${HEADER}\"\n\nnamespace ${SPACE} {\n\n")
string(APPEND text "const std::vector<${TYPE}>& ${FUNCTION}() {\n    static const std::vector<${TYPE}> files{\n")
foreach(file ${FILES})
    get_filename_component(name "${file}" NAME)
    if(BASE)
        file(RELATIVE_PATH name "${BASE}" "${file}")
    endif()
    file(READ "${file}" content)
    string(APPEND text "        {\"${name}\", R\"embedded(${content})embedded\"},\n")
endforeach()
string(APPEND text "    };\n    return files;\n}\n\n}  // namespace ${SPACE}\n")
file(WRITE "${OUTPUT}" "${text}")
