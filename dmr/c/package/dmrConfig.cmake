# find_package(dmr) makes the target dmr::dmr, which brings MPI for C along.
include(CMakeFindDependencyMacro)
find_dependency(MPI COMPONENTS C)
if(NOT TARGET dmr::dmr)
  get_filename_component(dmr_PREFIX "${CMAKE_CURRENT_LIST_DIR}/../../.." ABSOLUTE)
  add_library(dmr::dmr SHARED IMPORTED)
  set_target_properties(dmr::dmr PROPERTIES
    IMPORTED_LOCATION "${dmr_PREFIX}/lib/libdmr.so"
    IMPORTED_NO_SONAME TRUE
    INTERFACE_INCLUDE_DIRECTORIES "${dmr_PREFIX}/include"
    INTERFACE_LINK_LIBRARIES MPI::MPI_C)
endif()
