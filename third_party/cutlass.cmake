# Finds the CUTLASS 4.x headers: sets SPARSEK_CUTLASS_INCLUDE_DIR and SPARSEK_CUTLASS_VERSION.
# In order: -DSPARSEK_CUTLASS_DIR or the environment variable; third_party/cutlass; the nvidia-cutlass wheel.
set(SPARSEK_CUTLASS_DIR "" CACHE PATH "A CUTLASS checkout (the folder that holds include/cutlass)")

function(sparsek_cutlass_version include_dir result)
  set(header "${include_dir}/cutlass/version.h")
  if(NOT EXISTS "${header}")
    set(${result} "" PARENT_SCOPE)
    return()
  endif()
  file(STRINGS "${header}" lines REGEX "#define CUTLASS_(MAJOR|MINOR|PATCH) +[0-9]+")
  list(TRANSFORM lines REPLACE ".* ([0-9]+).*" "\\1")
  list(JOIN lines "." version)
  set(${result} "${version}" PARENT_SCOPE)
endfunction()

set(cutlass_help "sparsek needs the CUTLASS headers, version >= 4.2 and < 5, for its CUDA backends. Any one of these will do:
  - pass -DSPARSEK_CUTLASS_DIR=DIR, or set the environment variable SPARSEK_CUTLASS_DIR, to a CUTLASS checkout
    (with pip: SPARSEK_CUTLASS_DIR=DIR pip install .);
  - put a checkout at third_party/cutlass (4.3.5 is the supported one; third_party/README.md says how);
  - pip install nvidia-cutlass==4.2.0.0 (`pip install .` does this by itself);
or build for the CPU alone with -DSPARSEK_CUDA=OFF.")

set(named_dir "${SPARSEK_CUTLASS_DIR}")
if(NOT named_dir)
  set(named_dir "$ENV{SPARSEK_CUTLASS_DIR}")
endif()
if(named_dir)
  set(candidate "${named_dir}/include")
  set(origin "SPARSEK_CUTLASS_DIR=${named_dir}")
elseif(EXISTS "${CMAKE_CURRENT_LIST_DIR}/cutlass/include")
  set(candidate "${CMAKE_CURRENT_LIST_DIR}/cutlass/include")
  set(origin "third_party/cutlass")
else()
  find_package(Python COMPONENTS Interpreter QUIET)
  set(origin "the nvidia-cutlass wheel")
  set(candidate "")
  if(Python_Interpreter_FOUND)
    execute_process(
      COMMAND "${Python_EXECUTABLE}" -c "import importlib.util as u; print(u.find_spec('cutlass_library').submodule_search_locations[0] + '/source/include')"
      OUTPUT_VARIABLE candidate OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  endif()
endif()

set(version "")
if(candidate)
  sparsek_cutlass_version("${candidate}" version)
endif()
if(NOT version)
  message(FATAL_ERROR "CUTLASS not found (looked at ${origin}).\n${cutlass_help}")
endif()
if(version VERSION_LESS 4.2 OR version VERSION_GREATER_EQUAL 5)
  message(FATAL_ERROR "CUTLASS ${version} found (${origin}), expected >= 4.2 and < 5.\n${cutlass_help}")
endif()
set(SPARSEK_CUTLASS_INCLUDE_DIR "${candidate}")
set(SPARSEK_CUTLASS_VERSION "${version}")
