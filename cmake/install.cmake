# cmake --install, and a Debian package (`cpack -G DEB` in the build folder): the program with its recipes, completions,
# manual page and documents. The program itself generates completions and manual page from the definition of the command
# line.
include(GNUInstallDirs)

set(extras ${CMAKE_BINARY_DIR}/extras)
file(MAKE_DIRECTORY ${extras})
set(written "")
function(written_by_some file)  # file, then the arguments whose output it holds
  string(REPLACE ";" " " arguments "${ARGN}")
  add_custom_command(OUTPUT ${extras}/${file}
    COMMAND sh -c "\"$1\" ${arguments} >\"$2\"" sh $<TARGET_FILE:some> ${extras}/${file}
    DEPENDS some COMMENT "Writing ${file}" VERBATIM)
  set(written ${written} ${extras}/${file} PARENT_SCOPE)
endfunction()
written_by_some(some.1 manual)
written_by_some(some completion bash)
written_by_some(_some completion zsh)
written_by_some(some.fish completion fish)
add_custom_target(some_extras ALL DEPENDS ${written})

install(TARGETS some RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
install(DIRECTORY recipes DESTINATION ${CMAKE_INSTALL_DATADIR}/some FILES_MATCHING PATTERN "*.toml")
install(FILES ${extras}/some.1 DESTINATION ${CMAKE_INSTALL_MANDIR}/man1)
install(FILES ${extras}/some DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions)
install(FILES ${extras}/_some DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/vendor-completions)
install(FILES ${extras}/some.fish DESTINATION ${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d)
install(FILES README.md DESTINATION ${CMAKE_INSTALL_DOCDIR})
install(FILES LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR} RENAME copyright)
install(DIRECTORY docs DESTINATION ${CMAKE_INSTALL_DOCDIR})

set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME some)
set(CPACK_PACKAGE_CONTACT "The SoME authors")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "self-organizing mixture-of-experts language models")
set(CPACK_DEBIAN_PACKAGE_DESCRIPTION "Trains, runs, inspects and explains language models whose feed-forward blocks are libraries of frozen
 random experts with addresses that organize themselves.")
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_DEBIAN_PACKAGE_SECTION science)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
# Optional at run time: faster matrix products, and line editing in `some chat`.
set(CPACK_DEBIAN_PACKAGE_RECOMMENDS "libdnnl3 | libdnnl2, libedit2")
set(CPACK_STRIP_FILES ON)
# The backends that connect ranks are separate packages (some-mpi, some-nccl), because they require MPI and NCCL. The
# program finds them where they are installed; without them, starting several ranks fails with one line that names the
# missing package.
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_COMPONENTS_GROUPING IGNORE)
set(CPACK_COMPONENTS_ALL Unspecified)
set(CPACK_DEBIAN_UNSPECIFIED_PACKAGE_NAME some)
if(TARGET some_mpi)
  list(APPEND CPACK_COMPONENTS_ALL mpi)
  set(CPACK_DEBIAN_MPI_PACKAGE_NAME some-mpi)
  set(CPACK_DEBIAN_MPI_PACKAGE_DEPENDS "some (= ${PROJECT_VERSION})")
  set(CPACK_DEBIAN_MPI_PACKAGE_RECOMMENDS openmpi-bin)
  set(CPACK_COMPONENT_MPI_DESCRIPTION "Links the ranks of some by MPI: mpirun -n 4 some train ...")
  list(APPEND link_packages some-mpi)
endif()
if(TARGET some_nccl)
  list(APPEND CPACK_COMPONENTS_ALL nccl)
  set(CPACK_DEBIAN_NCCL_PACKAGE_NAME some-nccl)
  set(CPACK_DEBIAN_NCCL_PACKAGE_DEPENDS "some (= ${PROJECT_VERSION})")
  # NCCL may also come from its vendor's archive or a container image, so no package dependency is declared.
  set(CPACK_DEBIAN_NCCL_PACKAGE_SHLIBDEPS OFF)
  set(CPACK_DEBIAN_NCCL_PACKAGE_RECOMMENDS libnccl2)
  set(CPACK_COMPONENT_NCCL_DESCRIPTION "Carries numbers of the ranks of some from GPU to GPU by NCCL.")
  list(APPEND link_packages some-nccl)
endif()
if(link_packages)
  list(JOIN link_packages ", " CPACK_DEBIAN_UNSPECIFIED_PACKAGE_SUGGESTS)
endif()
include(CPack)
