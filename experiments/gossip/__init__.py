"""Gossiping SGD (Jin et al. 2016): its bounds held against simulation, and its comparison with elastic averaging."""
