if(TARGET sparkv-server)
  # tests/testing comes after this folder; the target is looked up when all are read.
  sparkv_add_test(NAME tun_fetch_test SOURCES tun_fetch_test.cc DEPS sparkv_tun_link sparkv_edge_net sparkv_llm sparkv_cli_lib sparkv_edge_lib)
  add_dependencies(tun_fetch_test sparkv-server)
endif()
