/* SPDX-License-Identifier: Apache-2.0
 *
 * Graphs: nodes in the order in which they were captured (graph_capture.c), and what is made of
 * them to be run (graph_exec.c).
 */
#ifndef CH_GRAPH_H
#define CH_GRAPH_H

#include "tests/cuda_host/task.h"

struct CUgraphNode_st {
    struct ch_task task;
    uint32_t index;
    uint32_t n_deps;
    cudaGraphNode_t deps[]; /* all with smaller indices */
};

struct CUgraph_st {
    cudaGraphNode_t *nodes;
    uint32_t n, room;
};

/* Lock held. */
cudaGraphNode_t ch_graph_add(cudaGraph_t g, const struct ch_task *t, const cudaGraphNode_t *deps,
                             uint32_t n_deps);
void ch_graph_free(cudaGraph_t g);

#endif
