#!/bin/bash
# As big_vision's: without arguments it installs what is needed; with some it runs a module.
if [ $# -ne 0 ]; then
  env TFDS_DATA_DIR=$TFDS_DATA_DIR BV_JAX_INIT=1 python3 -m "$@"
fi
