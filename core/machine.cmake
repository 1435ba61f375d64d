# SPDX-License-Identifier: Apache-2.0
list(APPEND ATSI_CORE_SOURCES cpu_caps.c cgroup.c topo.c topo_pick.c topo_share.c pool.c)
