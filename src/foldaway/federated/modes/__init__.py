"""The modes of a federated trial."""
