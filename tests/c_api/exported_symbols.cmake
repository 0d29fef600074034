# The test `exported_symbols`: the shared library exports what exported_symbols.txt lists and nothing
# else. Functions of the C API are listed by name. Of C++, the qualified names of functions are: their
# parameters are spelt in as many ways as there are standard libraries, and compilers differ in which
# tables of classes (vtable, typeinfo) they emit where.
cmake_minimum_required(VERSION 3.25)

execute_process(
    COMMAND ${NM} --dynamic --defined-only --demangle ${LIBRARY}
    OUTPUT_VARIABLE output COMMAND_ERROR_IS_FATAL ANY)
# Lists are separated by what no name may hold.
string(REPLACE ";" "" output "${output}")
string(REPLACE "[abi:cxx11]" "" output "${output}")
string(REGEX MATCHALL "[^\n]+" lines "${output}")
set(exported "")
foreach(line IN LISTS lines)
    string(REGEX REPLACE "^[0-9a-f]* . " "" name "${line}")
    if(name MATCHES "^(vtable|typeinfo|typeinfo name) for backlight::(Error|BackwardPlan)$")
        continue()
    endif()
    string(REGEX REPLACE "\\(.*$" "" name "${name}")
    list(APPEND exported "${name}")
endforeach()
list(REMOVE_DUPLICATES exported)
list(SORT exported)

file(STRINGS ${EXPECTED} expected REGEX "^[^#]")
set(unexpected ${exported})
list(REMOVE_ITEM unexpected ${expected})
set(missing ${expected})
list(REMOVE_ITEM missing ${exported})
if(unexpected OR missing)
    list(JOIN unexpected "\n  " unexpected)
    list(JOIN missing "\n  " missing)
    message(FATAL_ERROR "${LIBRARY} and ${EXPECTED} differ.\nexported, not listed:\n  ${unexpected}\n"
                        "listed, not exported:\n  ${missing}")
endif()
list(LENGTH exported count)
message(STATUS "${count} names, as listed")
