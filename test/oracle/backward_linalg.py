"""Cases of backward_oracle.py: functions of matrices."""

import torch


def regular(x):
    """Symmetric, with eigenvalues above one."""
    return x @ x.mT + 2 * torch.eye(x.shape[-1])


def lower(x):
    return x.tril() + 3 * torch.eye(x.shape[-1])


SQUARE = (4, 4)
CASES = {
    "inv": (lambda x: torch.linalg.inv(regular(x)), SQUARE),
    "inv_of_columns": (lambda x: torch.linalg.inv(regular(x).mT).mT.contiguous(), SQUARE),
    "solve": (lambda x, b: torch.linalg.solve(regular(x), b), SQUARE, (4, 3)),
    "solve_vectors": (lambda x, b: torch.linalg.solve(regular(x), b), SQUARE, (4,)),
    "solve_for_side": (
        lambda b: torch.linalg.solve(3 * torch.eye(4).expand(b.shape[0], 4, 4), b),
        (4, 3),
    ),
    "solve_triangular": (
        lambda x, b: torch.linalg.solve_triangular(lower(x), b, upper=False),
        SQUARE,
        (4, 3),
    ),
    "solve_triangular_right": (
        lambda x, b: torch.linalg.solve_triangular(lower(x), b, upper=False, left=False),
        SQUARE,
        (3, 4),
    ),
    "cholesky": (lambda x: torch.linalg.cholesky(regular(x)), SQUARE),
    "cholesky_upper": (lambda x: torch.linalg.cholesky(regular(x), upper=True), SQUARE),
    "cholesky_old": (lambda x: torch.cholesky(regular(x)), SQUARE),
    "cholesky_solve": (lambda x, b: torch.cholesky_solve(b, lower(x)), SQUARE, (4, 3)),
    "cholesky_inverse": (lambda x: torch.cholesky_inverse(lower(x)), SQUARE),
    "det": (lambda x: torch.linalg.det(regular(x)), SQUARE),
    "det_of_doubles": (lambda x: torch.linalg.det(regular(x).double()), SQUARE),
    "slogdet": (lambda x: torch.linalg.slogdet(regular(x))[1], SQUARE),
    "logdet": (lambda x: torch.logdet(regular(x)), SQUARE),
    "eigenvalues": (lambda x: torch.linalg.eigh(regular(x))[0], SQUARE),
    "eigenvectors": (lambda x: torch.linalg.eigh(regular(x))[1], SQUARE),
    "eigenvalues_alone": (lambda x: torch.linalg.eigvalsh(regular(x)), SQUARE),
    "singular_values": (lambda x: torch.linalg.svd(x, full_matrices=False)[1], (4, 6)),
    "singular_values_of_all": (lambda x: torch.linalg.svd(x)[1], (6, 4)),
    "singular_values_alone": (lambda x: torch.linalg.svdvals(x), (6, 4)),
    "qr_of_rows": (lambda x: torch.linalg.qr(x)[0], (6, 4)),
    "qr_triangle": (lambda x: torch.linalg.qr(x)[1], (6, 4)),
    "qr_both": (lambda x: torch.matmul(*torch.linalg.qr(x)), (6, 4)),
    "matrix_exp": (lambda x: torch.linalg.matrix_exp(x * 0.1), (6, 6)),
    "matrix_exp_of_large": (lambda x: torch.matrix_exp(x * 3), (6, 6)),
    "householder": (lambda x, t: torch.linalg.householder_product(x, t), (6, 4), (4,)),
    "adjoint": (lambda x: x.mH @ x, (4, 6)),
    "trace": (lambda x: torch.trace(x[:, :, 0]) * x, (4, 6)),
}
