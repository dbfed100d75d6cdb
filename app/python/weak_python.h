// Included ahead of all else where the module is compiled that holds the command line, too: in a process
// without an interpreter Python's names are missing, which a library may lack only if they are weak. Python's
// pyport.h leaves these macros alone where they are defined.
#pragma once

#define PyAPI_FUNC(TYPE) __attribute__((weak, visibility("default"))) TYPE
#define PyAPI_DATA(TYPE) extern __attribute__((weak, visibility("default"))) TYPE
