"""The members of the cluster: messages between them, and changes of the membership."""
