include(GNUInstallDirs)
foreach(_binary sparkv-server sparkv-edge sparkv)
  if(TARGET ${_binary})
    install(TARGETS ${_binary} RUNTIME DESTINATION "${CMAKE_INSTALL_BINDIR}" OPTIONAL)  # what was built
    # LibTorch stays where it was found; an installed binary keeps pointing at it.
    set_target_properties(${_binary} PROPERTIES INSTALL_RPATH "${SPARKV_TORCH_LIB_DIR}")
  endif()
endforeach()
install(DIRECTORY "${PROJECT_SOURCE_DIR}/deploy/profiles" DESTINATION "${CMAKE_INSTALL_DATADIR}/sparkv"
        FILES_MATCHING PATTERN "*.skvp")
