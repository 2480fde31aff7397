"""Programs of torch_geometric: the nodes of all graphs of a batch lie in one
tensor, and edges are pairs of their numbers."""

from registry import program

# Edges join the first nodes only: numbers must lie below the batch.
GRAPH = ["float32[4*B,16]", "int64[2,3*B]{0:B}"]


def network(kind, **options):
    from torch_geometric.nn import models

    return getattr(models, kind)(16, 32, 2, 8, **options), GRAPH


@program
def pyg_gcn():
    return network("GCN")


@program
def pyg_gat():
    return network("GAT", heads=2)


@program
def pyg_gatv2():
    return network("GAT", heads=2, v2=True, jk="cat")


@program
def pyg_graphsage():
    return network("GraphSAGE")


@program
def pyg_gin():
    return network("GIN")


@program
def pyg_edge_conv():
    return network("EdgeCNN")


@program
def pyg_pooled():
    """One answer per graph; the graph of a node is computed from its
    number, four nodes a graph."""
    import torch
    from torch_geometric.nn import GraphConv, global_add_pool, global_max_pool

    class Pooled(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.first = GraphConv(16, 32)
            self.second = GraphConv(32, 32, aggr="mean")
            self.head = torch.nn.Linear(64, 5)

        def forward(self, x, edges):
            x = torch.relu(self.first(x, edges))
            x = torch.relu(self.second(x, edges))
            graphs = x.size(0) // 4
            owner = torch.arange(x.size(0)) // 4
            x = torch.cat([global_add_pool(x, owner, graphs), global_max_pool(x, owner, graphs)], 1)
            return self.head(x)

    return Pooled(), GRAPH
