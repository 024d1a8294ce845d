# intact_install_program(program component): installs a program with its manual page and its completions. The program writes
# them itself, as soon as it is linked (tools/console/documents.h).
function(intact_install_program program component)
  set(documents)
  foreach(shell man bash zsh fish)
    list(APPEND documents COMMAND ${program} --document ${shell} > ${program}.${shell})
  endforeach()
  add_custom_command(TARGET ${program} POST_BUILD ${documents} COMMENT "Documents of ${program}" VERBATIM)

  install(TARGETS ${program} RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT ${component})
  foreach(document
          man:${CMAKE_INSTALL_MANDIR}/man1/${program}.1
          bash:${CMAKE_INSTALL_DATADIR}/bash-completion/completions/${program}
          zsh:${CMAKE_INSTALL_DATADIR}/zsh/site-functions/_${program}
          fish:${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d/${program}.fish)
    string(REPLACE ":" ";" document ${document})
    list(GET document 0 shell)
    list(GET document 1 path)
    cmake_path(GET path PARENT_PATH folder)
    cmake_path(GET path FILENAME name)
    install(FILES ${CMAKE_CURRENT_BINARY_DIR}/${program}.${shell} DESTINATION ${folder} RENAME ${name}
            COMPONENT ${component})
  endforeach()
endfunction()
