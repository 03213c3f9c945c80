# Flags shared by every target that compiles CUDA.
set(SPARSEK_CUDA_OPTIONS --expt-relaxed-constexpr -Xptxas=-v -diag-suppress=177
    CACHE INTERNAL "Options of every CUDA source")

# sparsek_cuda_backend(NAME ARCHITECTURES A... SOURCES S...): an object library that becomes part of libsparsek.a.
function(sparsek_cuda_backend name)
  cmake_parse_arguments(arg "" "" "ARCHITECTURES;SOURCES" ${ARGN})
  add_library(${name} OBJECT ${arg_SOURCES})
  set_target_properties(${name} PROPERTIES CUDA_ARCHITECTURES "${arg_ARCHITECTURES}")
  target_compile_definitions(${name} PRIVATE CUTLASS_ENABLE_GDC_FOR_SM90=1)
  target_compile_options(${name} PRIVATE
    $<$<COMPILE_LANGUAGE:CUDA>:${SPARSEK_CUDA_OPTIONS}> $<$<COMPILE_LANGUAGE:CXX>:-Wall -Wextra>)
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR}/cpp ${PROJECT_SOURCE_DIR}/include
    ${PROJECT_BINARY_DIR}/include)
  target_include_directories(${name} SYSTEM PRIVATE ${SPARSEK_CUTLASS_INCLUDE_DIR})
  target_link_libraries(${name} PRIVATE CUDA::cudart_static)
  target_sources(sparsek PRIVATE $<TARGET_OBJECTS:${name}>)
endfunction()
