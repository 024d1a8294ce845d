# intact_install_program(program component): installs a program, and its manual page if help2man can make one from --help-all.
find_program(INTACT_HELP2MAN help2man)

function(intact_install_program program component)
  install(TARGETS ${program} RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT ${component})
  if(NOT INTACT_HELP2MAN)
    return()
  endif()
  set(page ${CMAKE_CURRENT_BINARY_DIR}/${program}.1)
  add_custom_command(TARGET ${program} POST_BUILD COMMENT "Manual page of ${program}" VERBATIM
                     COMMAND ${INTACT_HELP2MAN} --no-info --no-discard-stderr --help-option=--help-all -o ${page} $<TARGET_FILE:${program}>)
  install(FILES ${page} DESTINATION ${CMAKE_INSTALL_MANDIR}/man1 COMPONENT ${component})
endfunction()
