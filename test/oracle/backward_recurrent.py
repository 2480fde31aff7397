"""Cases of backward_oracle.py: recurrent layers and cells."""

import torch


def run_cell(cell, width, states=1):
    """Two steps of a cell, whose weights are operands."""

    def run(x, h, w, u):
        w, u = w[0].repeat(width, 1), u[0].repeat(width, 1)
        state = (h, h) if states == 2 else h
        for step in range(2):
            state = cell(x[:, step], state, w, u)
        return torch.cat(state, 1) if states == 2 else state

    return run


def run_lstm(layers=1, directions=1, first=True, result=0, biased=True, width=5, hidden=4):
    """Of several layers all weights are the same."""

    def run(x, h, w, u, v, b):
        state = h.transpose(0, 1).contiguous()
        weights = []
        for cell in range(layers * directions):
            weights += [(w if cell < directions else v)[0], u[0]]
            weights += [b[0], b[0] * 2] if biased else []
        if not first:
            x = x.transpose(0, 1)
        made = torch.lstm(
            x, [state, state * 2], weights, biased, layers, 0.0, True, directions == 2, first
        )
        return (
            made[result]
            if result is not None
            else torch.cat([made[0].flatten(), made[1].flatten()])
        )

    rows = 4 * hidden
    cells, later = layers * directions, hidden * directions
    return run, (6, width), (cells, hidden), (rows, width), (rows, hidden), (rows, later), (rows,)


def run_gru(layers=1, result=0):
    """Of several layers the weights of all but the first are the same."""

    def run(x, h, w, u, v, b):
        weights = []
        for layer in range(layers):
            weights += [(v if layer else w)[0], u[0], b[0], b[0] * 2]
        state = h.detach().transpose(0, 1).contiguous()
        return torch.gru(x, state, weights, True, layers, 0.0, True, False, True)[result]

    return run, (6, 5), (layers, 4), (12, 5), (12, 4), (12, 4), (12,)


CASES = {
    "lstm_cell": (run_cell(torch.lstm_cell, 4, 2), (2, 5), (3,), (3, 5), (3, 3)),
    "gru_cell": (run_cell(torch.gru_cell, 3), (2, 5), (3,), (3, 5), (3, 3)),
    "rnn_tanh_cell": (run_cell(torch.rnn_tanh_cell, 1), (2, 5), (3,), (3, 5), (3, 3)),
    "rnn_relu_cell": (run_cell(torch.rnn_relu_cell, 1), (2, 5), (3,), (3, 5), (3, 3)),
    "lstm": run_lstm(),
    "lstm_time_first": run_lstm(first=False),
    "lstm_unbiased": run_lstm(biased=False),
    "lstm_of_one_feature": run_lstm(width=1, hidden=3),
    "lstm_of_one_unit": run_lstm(hidden=1),
    "lstm_of_ones": run_lstm(width=1, hidden=1, first=False),
    "lstm_state": run_lstm(result=1),
    "lstm_cell_state": run_lstm(result=2),
    "lstm_both": run_lstm(result=None),
    "lstm_layers": run_lstm(layers=3),
    "lstm_bidirectional": run_lstm(directions=2),
    "lstm_layers_bidirectional": run_lstm(layers=2, directions=2),
    "gru": run_gru(),
    "gru_layers": run_gru(layers=2),
    "gru_state": run_gru(result=1),
}
